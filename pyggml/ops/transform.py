"""Orthogonal transforms of the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["fwht"]


def fwht(x: Any, normalized: bool = True, *, dtype: DTypeLike | None = None) -> Node:
    """The fast Walsh-Hadamard transform of the last axis, natural order.

    y[i] = s * sum over j of (-1)^popcount(i & j) * x[j], with s = 1 / sqrt(N) when `normalized`
    (applying it twice then gives x back), else 1. The sums are made before s:
    N |x| has to stay below the largest float. ggml's public header has no op of this name.

    Shapes: (..., N) -> (..., N), N a power of two.
    Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand.
        normalized: whether to divide by sqrt(N).
        dtype: of the result.

    Raises:
        ShapeError: the last axis is missing or no power of two long.
        DTypeError: an integer operand.
    Source: Fino & Algazi 1976; csrc/ops/transform.c.
    """
    return call_op("fwht", x, normalized=normalized, dtype=dtype)
