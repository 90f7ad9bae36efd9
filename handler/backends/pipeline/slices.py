"""Runs a pipeline on some rows of a request at a time: the memory of its steps does not grow with the request."""

from collections.abc import Callable, Mapping, Sequence

from core.errors import InvalidInput, ModelFailed, ServingError, located, shown
from core.tensor import Tensor, joined
from handler.backends.pipeline.steps import Took

Ran = tuple[list[Tensor], Sequence[Took]]


def run(once: Callable[[Mapping[str, Tensor]], Ran], inputs: Mapping[str, Tensor], most: int) -> Ran:
    """Returns the outputs of all rows, and the time of each step in all. `most`: the rows at a time.

    Raises InvalidInput for inputs of different numbers of rows, ModelFailed for outputs that do not fit each other.
    """
    counts = {tensor.shape[:1] for tensor in inputs.values()}
    if len(counts) != 1 or counts == {()}:
        sizes = ", ".join(f"{shown(name)} {list(tensor.shape)}" for name, tensor in inputs.items())
        raise InvalidInput(f"the inputs have the shapes {sizes}; expected as many rows in each")
    (count,) = counts.pop()
    if count <= most or all(0 in tensor.shape for tensor in inputs.values()):  # the second takes no memory
        return once(inputs)
    parts, took = [], dict[bytes, int]()
    for start in range(0, count, most):
        end = min(count, start + most)
        try:
            outputs, times = once({name: tensor.rows(start, end) for name, tensor in inputs.items()})
        except ServingError as error:
            raise located(error, f"rows {start} to {end - 1}") from error
        parts.append(outputs)
        for label, ns in times:
            took[label] = took.get(label, 0) + ns
    return [_joined(each, count) for each in zip(*parts, strict=True)], [*took.items()]


def _joined(parts: Sequence[Tensor], count: int) -> Tensor:
    shapes = {part.array.shape[1:] for part in parts}
    if len(shapes) > 1 or sum(len(part.array) if part.array.ndim else 0 for part in parts) != count:
        found = ", ".join(str(list(part.array.shape)) for part in parts[:8])
        told = f"output {shown(parts[0].name)} has the shapes {found} in parts of the request"
        raise ModelFailed(f"{told}, which do not make one tensor of {count} rows")
    return joined(parts)
