"""Views: slices, reshapes and axis permutations of a node's memory."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.checks import as_int, as_ints, shown
from pyggml.errors import GraphError, ParameterError, ShapeError
from pyggml.graph import Node, call_op
from pyggml.tensor import _node_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["permute", "reshape", "transpose", "view"]


def view(x: Node, index: Any) -> Node:
    """The part of x that numpy's `x[index]` names, sharing its memory.

    Shapes: as numpy.        Dtypes: any; a block format is cut only between blocks.

    Args:
        x: any node.
        index: an int, a slice, `...`, None (a new axis of length 1), or a tuple of those. Slices
            clip as in numpy; an int out of range raises.

    Raises:
        ShapeError: an int out of range, a negative or zero step, too many indices, or a cut inside
            a block.
        ParameterError: an index of another kind (arrays and lists: see `get_rows`).
    Source: csrc/ops/view.c.
    """
    _need_node("view", x)
    items = index if isinstance(index, tuple) else (index,)
    start, step, size, keep, new = _normalise(items, x.shape)
    with _core.AllOrNone(x.graph):
        result = call_op("view", x, ndim=x.ndim, start=start, step=step, size=size, keep=keep)
        if not new:
            return result
        shape = list(result.shape)
        for axis in new:
            shape.insert(axis, 1)
        # C carries strides over new axes of length 1, so this is a view too
        return call_op("reshape", result, ndim=len(shape), size=shape)


def reshape(x: Node, shape: int | Sequence[int]) -> Node:
    """The elements of x, in row-major order, in another shape.

    A view where the memory allows it, else a view of a dense copy (`cont`).

    Shapes: any -> shape, which may hold one -1.        Dtypes: any.

    Raises:
        ShapeError: the element counts differ, more than one -1, or a last axis that is not whole
            blocks.
    Source: csrc/ops/view.c.
    """
    _need_node("reshape", x)
    dims = _fill_shape(x, list(_node_shape("reshape: shape", shape)))
    try:
        return call_op("reshape", x, ndim=len(dims), size=dims)
    except ShapeError:
        if prod(dims) != prod(x.shape) or min(dims, default=0) < 0:
            raise
    with _core.AllOrNone(x.graph):
        return call_op("reshape", call_op("cont", x), ndim=len(dims), size=dims)


def permute(x: Node, axes: Sequence[int]) -> Node:
    """A view of x whose axis i is axis axes[i] of x, as numpy's transpose(x, axes).

    Shapes: (n0, n1, ...) -> (n_axes[0], n_axes[1], ...).
    Dtypes: any; the last axis of a block format stays last.

    Raises:
        ShapeError: axes (negative ones count from the end) is not a permutation.
    Source: csrc/ops/view.c.
    """
    _need_node("permute", x)
    order = as_ints("permute: axes", axes, x.ndim)
    if len(order) != x.ndim:
        raise ShapeError(f"permute: axes: one for each of the {x.ndim} axes of x is needed")
    return call_op("permute", x, axes=[a + x.ndim if a < 0 else a for a in order])


def transpose(x: Node) -> Node:
    """A view of x with its last two axes swapped.

    Shapes: (..., M, N) -> (..., N, M).        Dtypes: any but block formats.

    Raises:
        ShapeError: x has fewer than two axes, or is of a block format.
    Source: csrc/ops/view.c; ggml_transpose.
    """
    return call_op("transpose", x)


# ---- indices ---------------------------------------------------------------------------------


def _need_node(op: str, x: Any) -> None:
    if not isinstance(x, Node):
        raise GraphError(f"{op}: x must be a node; g.const makes one of a tensor or an array")


def _fill_shape(x: Node, dims: list[int]) -> list[int]:
    """The shape with its -1 computed."""
    if min(dims, default=0) < -1:
        raise ShapeError(f"reshape: shape {tuple(dims)}: negative axis")
    if dims.count(-1) == 0:
        return dims
    if dims.count(-1) > 1:
        raise ShapeError(f"reshape: shape {tuple(dims)} holds more than one -1")
    rest, total = -prod(dims), prod(x.shape)
    if rest == 0 or total % rest:
        raise ShapeError(f"reshape: shape {tuple(dims)} cannot hold the {total} elements of x")
    return [total // rest if n == -1 else n for n in dims]


def _expand(items: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """The items with `...` spelled out: one int, slice or None each."""
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise ShapeError("view: an index holds at most one '...'")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(shape):
        raise ShapeError(f"view: index: {used} items for the shape {shape}")
    at = dots[0] if dots else len(items)
    fill = [slice(None)] * (len(shape) - used)
    return [*items[:at], *fill, *items[at + 1 :]]


def _normalise(
    items: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """(start, step, size, keep) an axis of x, and where in the result axes of length 1 come in."""
    start: list[int] = []
    step: list[int] = []
    size: list[int] = []
    keep: list[int] = []
    new: list[int] = []
    for item in _expand(items, shape):
        if item is None:
            new.append(sum(keep) + len(new))
            continue
        axis = len(start)
        first, stride, count = _one_axis(item, axis, shape)
        start.append(first)
        step.append(stride)
        size.append(count)
        keep.append(int(isinstance(item, slice)))
    return start, step, size, keep, new


def _one_axis(item: Any, axis: int, shape: tuple[int, ...]) -> tuple[int, int, int]:
    n = shape[axis]
    if isinstance(item, slice):
        if item.step is not None and as_int("view: index", item.step) < 1:
            raise ShapeError(
                f"view: axis {axis}: negative steps and 0 are not views (step {shown(item.step)})"
            )
        for bound in (item.start, item.stop):
            if bound is not None:
                as_int("view: index", bound)
        first, stop, stride = item.indices(n)
        return first, stride, len(range(first, stop, stride))
    if isinstance(item, list) or (isinstance(item, np.ndarray) and item.ndim):
        raise ParameterError(f"view: index: a {type(item).__name__} makes no view; see get_rows")
    at = as_int("view: index", item)
    if not -n <= at < n:
        raise ShapeError(f"view: index {shown(at)} is outside axis {axis} of the shape {shape}")
    return at % n, 1, 1
