"""Rotary position embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml.graph import Node, call_op
from pyggml.ops.rows import _ids
from pyggml.tensor import Tensor

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike


def rope(
    x: Any,
    pos: Any,
    freq_factors: Any = None,
    *,
    n_dims: int | None = None,
    mode: str = "norm",
    freq_base: float = 10000.0,
    freq_scale: float = 1.0,
    dtype: DTypeLike | None = None,
) -> Node:
    """Rotates pairs of each head by angles that grow with the token's position.

    Pair i turns by pos * freq_scale * freq_base^(-2i / n_dims) / freq_factors[i], computed in
    double. Elements from n_dims on are copied.

    Shapes: x (..., T, H, D), pos (T,), freq_factors (n_dims / 2,) -> (..., T, H, D).
    Dtypes: x any float, pos i32 or i64, freq_factors f32; scalar dtypes keep theirs, block formats
        give f32; `dtype` overrides.

    Args:
        x: heads of each token.
        pos: positions; negative ones turn backwards. Lists become constants.
        freq_factors: divisors of the frequencies (Llama 3.1), or None.
        n_dims: how many of the D elements turn: even, at most D. None: all.
        mode: "norm" pairs neighbours (2i, 2i + 1), "neox" pairs halves (i, i + n_dims / 2).
        freq_base: base of the frequencies.
        freq_scale: factor of the positions.
        dtype: of the result.

    Raises:
        ShapeError: operands that do not fit.
        ParameterError: n_dims odd or above D, an unknown mode, a base or scale that is not
            positive.
        DTypeError: pos that is no integer, freq_factors other than f32.
    Source: Su et al. 2021 (RoFormer); Black et al. 2022 for neox; csrc/ops/rope.c.
    """
    if n_dims is None:
        shape = x.shape if isinstance(x, (Node, Tensor)) else np.shape(x)
        n_dims = shape[-1] if shape else 0
    return call_op(
        "rope",
        x,
        _ids(pos),
        freq_factors,
        n_dims=n_dims,
        mode=mode,
        freq_base=freq_base,
        freq_scale=freq_scale,
        dtype=dtype,
    )
