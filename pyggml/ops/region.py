"""Writes into a region of a tensor, given by where it starts and how it steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.call import shape_of
from pyggml.errors import ShapeError
from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["acc", "set"]


def acc(
    dst: Any, x: Any, *, start: Sequence[int] | None = None, step: Sequence[int] | None = None
) -> Node:
    """Adds x to a region of dst and returns a view of dst; who reads dst later sees it.

    The region is dst[start[0] : : step[0], start[1] : : step[1], ...], as much of it as x has
    elements.

    Shapes: dst and x of as many axes -> dst's.
    Dtypes: any float; dst keeps its dtype. Computed in f32, rounded once.

    Args:
        dst: a writable Tensor, or a node.
        x: the summands. Not from the memory of dst (`cont` it first).
        start: first index on each axis; None: zeros.
        step: distance on each axis, at least 1; None: ones. Block formats are written in whole
            blocks.

    Raises:
        ShapeError: x does not fit into dst there, or start or step has not one number an axis.
        DTypeError: an integer operand.
        ReadOnlyError: dst is read-only memory.
        GraphError: x lies in the memory that is written.
    Source: csrc/ops/region.c; ggml_acc.
    """
    return call_op("acc", dst, x, **_region("acc", dst, start, step))


def set(
    dst: Any, x: Any, *, start: Sequence[int] | None = None, step: Sequence[int] | None = None
) -> Node:
    """Copies x into a region of dst and returns a view of dst; who reads dst later sees it.

    Shapes: dst and x of as many axes -> dst's.        Dtypes: as `cast`, to dst's own.

    Args:
        dst: a writable Tensor, or a node.
        x: what is copied. Not from the memory of dst (`cont` it first).
        start: as in `acc`.
        step: likewise.

    Raises:
        ShapeError: x does not fit into dst there, or start or step has not one number an axis.
        DTypeError: a pair that `cast` refuses.
        ReadOnlyError: dst is read-only memory.
        GraphError: x lies in the memory that is written.
    Source: csrc/ops/region.c; ggml_set.
    """
    return call_op("set", dst, x, **_region("set", dst, start, step))


def _region(
    op: str, dst: Any, start: Sequence[int] | None, step: Sequence[int] | None
) -> dict[str, Any]:
    """The parameters that were given, one number an axis of dst."""
    given = {name: v for name, v in (("start", start), ("step", step)) if v is not None}
    ndim = len(shape_of(op, "dst", dst)) if given else 0
    for name, value in given.items():
        if hasattr(value, "__len__") and len(value) != ndim:
            raise ShapeError(f"{op}: {name} has {len(value)} numbers, dst has {ndim} axes")
    return given
