"""Normalisation of the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["l2_norm", "norm", "rms_norm"]


def rms_norm(x: Any, eps: float = 1e-5, *, dtype: DTypeLike | None = None) -> Node:
    """Root-mean-square normalisation of the last axis: x / sqrt(mean(x^2) + eps).

    A weight is a `mul` after it.

    Shapes: (..., E) -> (..., E).        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand, at least one axis.
        eps: added to the mean square; at least 0.
        dtype: of the result.

    Raises:
        ParameterError: eps is negative, NaN or infinite.
        ShapeError: x has no axis.
    Source: Zhang & Sennrich 2019 (RMSNorm); csrc/ops/norm.c.
    """
    return call_op("rms_norm", x, eps=eps, dtype=dtype)


def norm(x: Any, eps: float = 1e-5, *, dtype: DTypeLike | None = None) -> Node:
    """Layer normalisation of the last axis: (x - mean) / sqrt(variance + eps).

    The variance is the mean of (x - mean)^2, where x - mean has to fit F32. Weight and bias are a
    `mul` and an `add` after it.

    Shapes: (..., E) -> (..., E).        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand, at least one axis.
        eps: added to the variance; at least 0.
        dtype: of the result.

    Raises:
        ParameterError: eps is negative, NaN or infinite.
        ShapeError: x has no axis.
        DTypeError: an integer operand.
    Source: Ba et al. 2016 (layer normalisation); csrc/ops/norm.c; ggml_norm.
    """
    return call_op("norm", x, eps=eps, dtype=dtype)


def l2_norm(x: Any, eps: float = 1e-5, *, dtype: DTypeLike | None = None) -> Node:
    """Each row divided by its Euclidean length: x / max(sqrt(sum x^2), eps).

    Shapes: (..., E) -> (..., E).        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand, at least one axis.
        eps: the least length to divide by; at least 0 (with 0 a row of zeros gives NaN).
        dtype: of the result.

    Raises:
        ParameterError: eps is negative, NaN or infinite.
        ShapeError: x has no axis.
        DTypeError: an integer operand.
    Source: csrc/ops/norm.c; ggml_l2_norm.
    """
    return call_op("l2_norm", x, eps=eps, dtype=dtype)
