"""Rotary position embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.call import shape_of
from pyggml.errors import ShapeError
from pyggml.graph import Node, call_op
from pyggml.ops.rows import _ids

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["rope"]


def rope(
    x: Any,
    pos: Any,
    freq_factors: Any = None,
    *,
    n_dims: int | None = None,
    mode: str = "norm",
    freq_base: float = 10000.0,
    freq_scale: float = 1.0,
    n_ctx_orig: int = 0,
    ext_factor: float = 0.0,
    attn_factor: float = 1.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    dtype: DTypeLike | None = None,
) -> Node:
    """Rotates pairs of each head by angles that grow with the token's position.

    Pair i turns by pos * freq_scale * freq_base^(-2i / n_dims) / freq_factors[i], computed in
    double. Elements from n_dims on are copied.

    With ext_factor > 0 the frequencies follow YaRN: a pair that turns at least beta_fast times in
    n_ctx_orig positions keeps its frequency (freq_scale does not count), one that turns less than
    beta_slow times takes freq_scale, and those between mix the two; and the turned pairs are
    multiplied by 1 + 0.1 ln(1 / freq_scale). attn_factor multiplies them in any case.

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
        n_ctx_orig: context of the model before it was extended; YaRN needs it.
        ext_factor: share of YaRN in the mix; 0: none, 1: as published.
        attn_factor: factor of the turned pairs.
        beta_fast: turns from which on a pair keeps its frequency.
        beta_slow: turns below which a pair takes all of freq_scale.
        dtype: of the result.

    Raises:
        ShapeError: operands that do not fit.
        ParameterError: n_dims odd or above D, an unknown mode, a base or scale that is not
            positive; ext_factor without n_ctx_orig or betas, or with a base of at most 1.
        DTypeError: pos that is no integer, freq_factors other than f32.
    Source: Su et al. 2021 (RoFormer); Black et al. 2022 for neox; Peng et al. 2023 (YaRN);
        csrc/ops/rope.c; ggml_rope_ext for the parameters.
    """
    if n_dims is None:
        shape = shape_of("rope", "x", x)
        n_dims = shape[-1] if shape else 0
        if n_dims < 2:
            raise ShapeError(f"rope: the last axis of x, of shape {shape}, holds no pair to rotate")
    return call_op(
        "rope",
        x,
        _ids(pos),
        freq_factors,
        n_dims=n_dims,
        mode=mode,
        freq_base=freq_base,
        freq_scale=freq_scale,
        n_ctx_orig=n_ctx_orig,
        ext_factor=ext_factor,
        attn_factor=attn_factor,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        dtype=dtype,
    )
