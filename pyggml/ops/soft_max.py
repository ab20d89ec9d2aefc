"""Softmax of the last axis, and the causal mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["diag_mask_inf", "soft_max"]


def soft_max(
    x: Any,
    mask: Any = None,
    sinks: Any = None,
    *,
    scale: float = 1.0,
    max_bias: float = 0.0,
    dtype: DTypeLike | None = None,
) -> Node:
    """softmax(x * scale + slope * mask) over the last axis.

    A position whose mask is -inf gives exactly 0, whatever x holds there, and so does a score of
    -inf; a row with no other position gives zeros, with sinks too. A score of +inf or NaN makes its
    row NaN.

    The slope is 1 unless max_bias says otherwise (ALiBi). Then head h of H has, with n the largest
    power of two that is at most H, slope 2^(-max_bias (h + 1) / n) for h < n, and after those
    2^(-max_bias (2 (h - n) + 1) / (2 n)).

    Shapes: x (..., C), mask broadcasts to x -> (..., C). With sinks or max_bias x is
        (..., H, T, C) and sinks (H,).
    Dtypes: x any float, mask f32 or f16, sinks f32; result f32 unless `dtype` is given.

    Args:
        x: the scores, at least one axis.
        mask: added to the scores, or None.
        sinks: a score for each head that takes its share of the sum but has no column; neither
            scaled nor masked.
        scale: finite factor of the scores.
        max_bias: the steepest slope's exponent; 0: no slopes.
        dtype: of the result.

    Raises:
        ShapeError: a mask that does not broadcast to x, x without an axis, sinks that are not (H,).
        DTypeError: mask or sinks of another dtype.
        ParameterError: max_bias without a mask or without heads, negative or not finite.
    Source: Goodfellow et al. 2016, 4.1; Press et al. 2022 (ALiBi); Xiao et al. 2024 (sinks);
        csrc/ops/softmax.c; ggml_soft_max_ext, ggml_soft_max_add_sinks for the operands.
    """
    return call_op("soft_max", x, mask, sinks, scale=scale, max_bias=max_bias, dtype=dtype)


def diag_mask_inf(x: Any, n_past: int = 0, *, dtype: DTypeLike | None = None) -> Node:
    """The causal mask: -inf where the column is greater than n_past + row, x elsewhere.

    Shapes: (..., T, C) -> (..., T, C).
    Dtypes: x any float; scalar dtypes with an infinity keep theirs, F8_E4M3 and block formats give
        f32; `dtype` overrides.

    Args:
        x: the scores.
        n_past: how many columns come before that of row 0.
        dtype: of the result.

    Raises:
        ShapeError: x has fewer than two axes.
        DTypeError: an integer operand, a result dtype that has no infinity.
        ParameterError: n_past is negative.
    Source: csrc/ops/softmax.c; ggml_diag_mask_inf.
    """
    return call_op("diag_mask_inf", x, n_past=n_past, dtype=dtype)
