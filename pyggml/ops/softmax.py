"""Softmax of the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike


def soft_max(
    x: Any, mask: Any = None, *, scale: float = 1.0, dtype: DTypeLike | None = None
) -> Node:
    """softmax(x * scale + mask) over the last axis.

    A position whose mask is -inf gives exactly 0, whatever x holds there; a row with no other
    position gives zeros.

    Shapes: x (..., C), mask broadcasts to x -> (..., C).
    Dtypes: x any float, mask f32 or f16; result f32 unless `dtype` is given.

    Args:
        x: the scores, at least one axis.
        mask: added to the scores, or None.
        scale: finite factor of the scores.
        dtype: of the result.

    Raises:
        ShapeError: a mask that does not broadcast to x, x without an axis.
        DTypeError: a mask of another dtype.
    Source: Goodfellow et al. 2016, 4.1; csrc/ops/softmax.c; ggml_soft_max_ext for the operands.
    """
    return call_op("soft_max", x, mask, scale=scale, dtype=dtype)
