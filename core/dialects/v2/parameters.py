"""Parameters of requests, inputs and requested outputs: the protocol's own, and those that are the model's.

Sources: OIP inference_rest.md "Parameters"; Triton's extension_parameters.md and the extensions that define some.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from core.bounds import check_levels, check_parts, levels
from core.encoding.values import Inexact
from core.errors import InvalidInput, shown
from core.records import NamedTuple

ALL_BINARY: Final = "binary_data_output"
EMPTY_FINAL: Final = "triton_enable_empty_final_response"
"""A stream's parameter that asks for an empty last answer, if the end is not known with the last result."""
FINAL: Final = "triton_final_response"
"""Triton's parameter on every answer in a stream: whether it is the last one for its request."""
OWN: Final = frozenset({ALL_BINARY, EMPTY_FINAL, FINAL})
"""Parameters of the protocol itself. Clients send them by default, and models do not know them."""
SCALARS: Final = frozenset({str, int, float, bool, type(None)})
KINDS: Final = SCALARS | {list, dict}


class What(NamedTuple):
    """The subject of a message, which is formatted only if an error is raised."""

    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.role} {shown(self.name)}" if self.name else self.role


REQUEST: Final = What("the request", "")


def of_member(owner: Mapping[str, Any], what: What) -> Mapping[str, Any]:
    """Returns the parameters of a request or of one of its tensors. Raises InvalidInput, TooMany."""
    parameters = owner.get("parameters")
    if parameters is None:  # absent; pydantic clients send null
        return {}
    if not isinstance(parameters, dict):
        raise InvalidInput(f"'parameters' of {what} is {shown(parameters)}; expected an object")
    check_parts(parameters, "parameters")
    refuse_shared_memory(parameters, what)
    return parameters


def for_model(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a request's parameters without those of the protocol itself.

    Raises Inexact where the parser has put something of its own in place of JSON's values, which models do not know,
    and InvalidInput for a value that lies too deep.
    """
    if not OWN.isdisjoint(parameters):
        parameters = {name: value for name, value in parameters.items() if name not in OWN}
    if not SCALARS.issuperset(map(type, parameters.values())):
        for name, value in parameters.items():
            _check(name, value)
    return parameters


def _check(name: str, value: Any) -> None:
    """Raises Inexact for an array in place of a list, and for a number beyond every double, at any depth."""
    check_levels(name, value)
    for each in chain.from_iterable(levels(value)):
        if type(each) not in KINDS:
            raise Inexact(f"parameter {shown(name)} of the request has {shown(each)}, which is beyond every double")


def refuse_shared_memory(parameters: Mapping[str, Any], what: What) -> None:
    if "shared_memory_region" in parameters:
        raise InvalidInput(f"{what} has 'shared_memory_region': this server shares no memory with its clients")


def flag_of(parameters: Mapping[str, Any], name: str, what: What) -> bool | None:
    """Returns a boolean parameter, None if it is absent or null. Raises InvalidInput for any other type."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidInput(f"parameter '{name}' of {what} is {shown(value)}; expected true or false")
    return value


def classes_of(parameters: Mapping[str, Any], what: What) -> int:
    """Returns the classification extension's number of classes, 0 if absent or null.

    Raises InvalidInput unless it is an integer above 0. Source: Triton's extension_classification.md.
    """
    classes = parameters.get("classification")
    if classes is None:
        return 0
    if type(classes) is not int or classes < 1:
        raise InvalidInput(f"'classification' of {what} is {shown(classes)}; expected a number of classes above 0")
    return classes
