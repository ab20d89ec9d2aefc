"""Attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["flash_attn_ext"]


def flash_attn_ext(
    q: Any, k: Any, v: Any, mask: Any = None, *, scale: float, dtype: DTypeLike | None = None
) -> Node:
    """softmax(q k^T * scale + mask) v, without the score matrix in memory.

    G kv heads serve H query heads, H / G neighbours each. A query whose cells are all masked gives
    zeros, and what masked cells hold never matters. A score of +inf or NaN gives NaN, one of -inf
    hides its cell. The weighted sum is made before it is divided by the sum of the weights, so that
    C |v| has to stay below the largest float.

    Shapes: q (B, H, T, D), k (B, G, C, D), v (B, G, C, Dv), mask (T, C) -> (B, T, H, Dv); all
        without B as well.
    Dtypes: q, k, v any float, each its own, mask f32 or f16; result f32 unless `dtype` is given.

    Args:
        q: queries.
        k: keys; rows of D lie dense, other strides are free.
        v: values; likewise.
        mask: added to the scores, or None.
        scale: finite factor of the scores, as a rule 1 / sqrt(D).
        dtype: of the result.

    Raises:
        ShapeError: operands that do not fit, H that is no multiple of G.
        DTypeError: an integer operand, a mask of another dtype.
    Source: Dao et al. 2022 (FlashAttention); Ainslie et al. 2023 (grouped heads);
        csrc/ops/attention.c; ggml_flash_attn_ext for the order of the axes.
    """
    return call_op("flash_attn_ext", q, k, v, mask, scale=scale, dtype=dtype)
