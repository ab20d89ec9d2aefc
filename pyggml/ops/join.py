"""Results put together from copies: joined, tiled, padded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.call import shape_of
from pyggml.checks import as_axis, as_ints
from pyggml.errors import ShapeError
from pyggml.graph import Node, call_op
from pyggml.tensor import _node_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyggml.dtypes import DTypeLike

__all__ = ["concat", "pad", "repeat"]


def concat(a: Any, b: Any, axis: int = -1, *, dtype: DTypeLike | None = None) -> Node:
    """The operand b behind a along an axis.

    Shapes: a (..., n, ...), b (..., m, ...), alike but for the axis -> (..., n + m, ...).
    Dtypes: equal dtypes of any kind keep theirs and their bytes; different floats give f32;
        `dtype` overrides. Integers of two dtypes, or with a float, are refused.

    Args:
        a: the first part.
        b: the second part.
        axis: numpy's count; negative ones from the end.
        dtype: of the result.

    Raises:
        ShapeError: no such axis, other axes that differ, b starting inside a block.
        DTypeError: dtypes that do not go together.
    Source: csrc/ops/join.c; ggml_concat.
    """
    ndim = len(shape_of("concat", "a", a))
    place = ndim - 1 - as_axis("concat", axis, ndim)
    return call_op("concat", a, b, axis=place, dtype=dtype)


def repeat(x: Any, shape: Sequence[int]) -> Node:
    """Tiles of x side by side until `shape` is full; numpy calls it tile.

    Shapes: x (n0, n1, ...) -> shape, whose last axes are whole multiples of those of x; it may
        have more axes in front.
    Dtypes: any, kept.

    Args:
        x: the tile.
        shape: of the result.

    Raises:
        ShapeError: an axis that is no whole multiple, or fewer axes than x.
    Source: csrc/ops/join.c; ggml_repeat.
    """
    size = _node_shape("repeat: shape", shape)
    return call_op("repeat", x, ndim=len(size), size=size)


def pad(x: Any, after: Sequence[int], before: Sequence[int] | None = None) -> Node:
    """Zeros around x.

    Shapes: x (n0, n1, ...) -> (before[0] + n0 + after[0], before[1] + n1 + after[1], ...).
    Dtypes: any, kept; the last axis of a block format is padded by whole blocks.

    Args:
        x: the operand.
        after: how many elements follow x, one number an axis.
        before: how many come before it; None: none.

    Raises:
        ShapeError: not one number for each axis, a part of a block.
        ParameterError: a negative number.
    Source: csrc/ops/join.c; ggml_pad, ggml_pad_ext.
    """
    ndim = len(shape_of("pad", "x", x))
    front = [0] * ndim if before is None else as_ints("pad: before", before, ndim)
    back = as_ints("pad: after", after, ndim)
    if len(front) != ndim or len(back) != ndim:
        raise ShapeError(f"pad: after and before need one number for each of the {ndim} axes of x")
    return call_op("pad", x, after=back, before=front)
