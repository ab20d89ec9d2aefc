"""Normalisation of the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike


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
