"""Rows of a batch as inputs. A number beyond the range of its input is refused; V1 would make it infinite."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from core.dialects.v1 import bulk
from core.dialects.v1.bulk import BoundRows
from core.dtype import BF16, FP64
from core.encoding.values import from_values
from core.float16 import bf16_to_float
from core.tensor import Tensor
from handler.edge.batch.terms import BatchTerms


def bound(values: Any, terms: BatchTerms) -> BoundRows:
    """Returns the inference of rows, as `bulk.bind` has it. Raises InvalidInput."""
    rows = bulk.bind(values, terms.spec, terms.signature)
    named = isinstance(values, list) and isinstance(values[0], dict)
    for alias, tensor in _grown(rows):
        source = [row[alias] for row in values if alias in row] if named else values
        _check(alias, tensor, source if len(source) else None)
    return rows


def bound_table(columns: Mapping[str, Any], count: int, terms: BatchTerms) -> BoundRows:
    """Returns the inference of a table, as `bulk.bind_table` has it. Raises InvalidInput."""
    rows = bulk.bind_table(columns, count, terms.spec, terms.signature)
    for alias, tensor in _grown(rows):
        _check(alias, tensor, columns.get(alias))
    return rows


def _grown(rows: BoundRows) -> list[tuple[str, Tensor]]:
    """Returns the inputs that have infinite numbers, each under the name that rows have for it."""
    signature = rows.signature
    aliases = {} if signature is None else {each.spec.name: alias for alias, each in (signature.inputs or {}).items()}
    return [(aliases.get(each.name, each.name), each) for each in rows.infer.inputs if _is_infinite(each)]


def _is_infinite(tensor: Tensor) -> bool:
    """Decides whether a tensor that is narrower than the numbers of records has an infinite one."""
    if tensor.datatype is BF16:
        return bool(np.isinf(bf16_to_float(tensor.array)).any())
    return tensor.datatype.is_float and tensor.datatype is not FP64 and bool(np.isinf(tensor.array).any())


def _check(alias: str, tensor: Tensor, source: Any) -> None:
    """Raises InvalidInput for a finite number that has become infinite. `source`: None for a default of the model."""
    if source is not None:
        from_values(alias, tensor.datatype, tensor.array.shape, source)
