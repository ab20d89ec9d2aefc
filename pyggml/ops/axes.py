"""numpy's `axis` and `keepdims` over ops that work along the last axis; used by methods of Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml.node import all_or_none
from pyggml.ops.join import _axis
from pyggml.ops.views import permute, reshape

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyggml.node import Node


def _last(x: Node, axis: int) -> Node:
    """A view of x with the axis moved to the end."""
    return permute(x, [*(i for i in range(x.ndim) if i != axis), axis])


def reduce_along(
    name: str, fn: Callable[[Node], Node], x: Node, axis: int | None, keepdims: bool
) -> Node:
    """The op fn, which makes one number of each row, along an axis; None: of all elements."""
    if axis is None:
        with all_or_none(x.graph):
            return reshape(fn(reshape(x, -1)), (1,) * x.ndim if keepdims else ())
    place = _axis(name, axis, x.ndim)
    rest = [n for i, n in enumerate(x.shape) if i != place]
    kept = [1 if i == place else n for i, n in enumerate(x.shape)]
    with all_or_none(x.graph):
        return reshape(fn(_last(x, place)), kept if keepdims else rest)


def scan_along(name: str, fn: Callable[[Node], Node], x: Node, axis: int | None) -> Node:
    """The op fn, which keeps the shape, along an axis; None: of all elements in a row."""
    if axis is None:
        with all_or_none(x.graph):
            return fn(reshape(x, -1))
    place = _axis(name, axis, x.ndim)
    order = list(range(x.ndim - 1))
    with all_or_none(x.graph):
        return permute(fn(_last(x, place)), [*order[:place], x.ndim - 1, *order[place:]])
