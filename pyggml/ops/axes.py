"""numpy's `axis`, `keepdims` and index arrays, made of ops that work along the last axis."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.checks import as_axes, as_axis, as_bool
from pyggml.errors import DTypeError, ParameterError, RowIndexError
from pyggml.node import Node
from pyggml.ops.rows import get_rows
from pyggml.ops.views import permute, reshape, view
from pyggml.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _turned(x: Node, axes: Sequence[int]) -> Node:
    return x if list(axes) == list(range(x.ndim)) else permute(x, axes)


def _shaped(x: Node, shape: Sequence[int]) -> Node:
    return x if tuple(shape) == x.shape else reshape(x, shape)


def one_axis(name: str, axis: Any, ndim: int) -> int | None:
    """An axis of an op that takes no more than one; None is none."""
    return None if axis is None else as_axis(name, axis, ndim)


def reduce_along(
    name: str,
    fn: Callable[[Node], Node],
    x: Node,
    axis: int | Sequence[int] | None,
    keepdims: bool,
) -> Node:
    """The op fn, which makes one number of each row, along the axes; None: of all elements."""
    places, keepdims = as_axes(name, axis, x.ndim), as_bool(f"{name}: keepdims", keepdims)
    rest = [i for i in range(x.ndim) if i not in places]
    lengths = [x.shape[i] for i in rest]
    kept = [1 if i in places else n for i, n in enumerate(x.shape)]
    with _core.AllOrNone(x.graph):
        if not rest:
            rows = _shaped(x, (x.size,))
        elif not places:  # each element is a row
            rows = reshape(x, (prod(lengths), 1))
        else:
            merged = prod(x.shape[i] for i in places)
            rows = _shaped(_turned(x, [*rest, *places]), (*lengths, merged))
        return _shaped(fn(rows), kept if keepdims else lengths)


def scan_along(name: str, fn: Callable[[Node], Node], x: Node, axis: int | None) -> Node:
    """The op fn, which keeps the shape, along an axis; None: of all elements in a row."""
    place = one_axis(name, axis, x.ndim)
    with _core.AllOrNone(x.graph):
        if place is None:
            return fn(_shaped(x, (x.size,)))
        order = list(range(x.ndim - 1))
        last = _turned(x, [*(i for i in range(x.ndim) if i != place), place])
        return _turned(fn(last), [*order[:place], x.ndim - 1, *order[place:]])


# ---- index arrays ----------------------------------------------------------------------------


def _rows_of(indices: Any, n: int) -> Any:
    """Row numbers as get_rows takes them; known ones are checked, negative ones counted back."""
    if isinstance(indices, (Node, Tensor)):
        if not indices.dtype.is_integer:
            raise DTypeError(f"take: indices are integers, got {indices.dtype.name}")
        return indices
    try:
        array = np.asarray(indices)
    except ValueError as e:
        raise DTypeError(f"take: indices are no array: {e}") from None
    if array.dtype.kind == "b":
        raise DTypeError("take: a mask's shape is not known when the graph is built")
    if array.size and array.dtype.kind not in "iu":
        raise DTypeError(f"take: indices are integers, got {array.dtype}")
    wrong = array[(array < -n) | (array >= n)]
    if wrong.size:
        raise RowIndexError(f"take: index {wrong.flat[0]} is outside an axis of {n}")
    array = array.astype(np.int64)
    return np.where(array < 0, array + n, array)


def take_along(x: Node, indices: Any, axis: int | None) -> Node:
    """See `Node.take`."""
    with _core.AllOrNone(x.graph):
        if axis is None:
            x, axis = _shaped(x, (x.size,)), 0
        place = as_axis("take", axis, x.ndim)
        n = x.shape[place]
        ids = _rows_of(indices, n)
        keep = None if x.dtype.is_block else x.dtype
        others = [i for i in range(x.ndim) if i != place]
        first = _turned(x, [place, *others])
        table = _shaped(first, (n, prod(first.shape[1:])))
        if isinstance(ids, Tensor):
            ids = x.graph.const(ids)
        shape = ids.shape
        rows = get_rows(table, ids if len(shape) == 1 else ids.reshape(-1), dtype=keep)
        whole = _shaped(rows, (*shape, *first.shape[1:]))
        moved = range(len(shape))
        before = [len(shape) + i for i in range(place)]
        after = [len(shape) + i for i in range(place, len(others))]
        return _turned(whole, [*before, *moved, *after])


def _is_array(item: Any) -> bool:
    """An index that names several places, not one."""
    if isinstance(item, (Node, Tensor, np.ndarray)):
        return item.ndim > 0
    return isinstance(item, list)


def take_index(x: Node, index: Any) -> Node | None:
    """x[index] where one of its items is an array of integers; None when there is none."""
    items = index if isinstance(index, tuple) else (index,)
    arrays = [i for i, item in enumerate(items) if _is_array(item)]
    if not arrays:
        return None
    if len(arrays) > 1:
        raise ParameterError("an index holds at most one array; index in several steps")
    at = arrays[0]
    if not all(
        isinstance(item, slice) or item is Ellipsis or item is None
        for i, item in enumerate(items)
        if i != at
    ):
        raise ParameterError("an index holds an array or integers, not both; index in two steps")
    before = items[:at]
    places = sum(item is None or isinstance(item, slice) for item in before)
    with _core.AllOrNone(x.graph):
        parts = view(x, (*before, slice(None), *items[at + 1 :]))
        after = sum(item is None or isinstance(item, slice) for item in items[at + 1 :])
        axis = parts.ndim - after - 1 if Ellipsis in before else places
        return take_along(parts, items[at], axis)
