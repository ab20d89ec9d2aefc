"""Rotary position embedding in float64, both pair layouts."""

import numpy as np


def rope_angles(pos, n_dims, freq_base=10000.0, freq_scale=1.0, freq_factors=None):
    """theta[t, i] = pos[t] * freq_scale * freq_base^(-2i / n_dims) / freq_factors[i].

    Shapes: pos (T,), freq_factors (n_dims/2,) or None -> (T, n_dims/2).
    Source: Su et al. 2021 (RoFormer) eq. 15; Chen et al. 2023 for the linear freq_scale;
    Llama 3.1 for the per-pair factors.
    """
    inverse = float(freq_base) ** (-2.0 * np.arange(n_dims // 2) / n_dims)
    if freq_factors is not None:
        inverse = inverse / np.asarray(freq_factors, dtype=np.float64)
    return np.asarray(pos, dtype=np.float64)[:, None] * freq_scale * inverse


def _rotate(x, first, second, theta):
    """Turn the pairs (x[..., first], x[..., second]) by theta; other dims are copied."""
    y = np.array(x, dtype=np.float64)
    cos, sin = np.cos(theta)[:, None, :], np.sin(theta)[:, None, :]  # (T, 1, n_dims/2)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    return y


def rope_norm(x, pos, n_dims=None, freq_base=10000.0, freq_scale=1.0, freq_factors=None):
    """Rotate adjacent pairs (2i, 2i + 1) of the first n_dims; llama's layout in GGUF.

    Shapes: x (..., T, H, D), pos (T,), n_dims <= D (default D) -> (..., T, H, D).
    Source: Su et al. 2021, eq. 34.
    """
    n = np.shape(x)[-1] if n_dims is None else n_dims
    first = np.arange(0, n, 2)
    theta = rope_angles(pos, n, freq_base, freq_scale, freq_factors)
    return _rotate(x, first, first + 1, theta)


def rope_neox(x, pos, n_dims=None, freq_base=10000.0, freq_scale=1.0, freq_factors=None):
    """Rotate half-split pairs (i, i + n_dims/2) of the first n_dims.

    Shapes: x (..., T, H, D), pos (T,), n_dims <= D (default D) -> (..., T, H, D).
    Source: Su et al. 2021 with GPT-NeoX's pairing (Black et al. 2022).
    """
    n = np.shape(x)[-1] if n_dims is None else n_dims
    first = np.arange(n // 2)
    theta = rope_angles(pos, n, freq_base, freq_scale, freq_factors)
    return _rotate(x, first, first + n // 2, theta)


def yarn(n_dims, n_ctx_orig, freq_base, freq_scale, ext_factor=1.0, beta_fast=32.0, beta_slow=1.0):
    """(frequency of each pair in radians a position, factor of the rotated pairs).

    A pair turns r(i) = n_ctx_orig * freq_base^(-2i / n_dims) / (2 pi) times in the original
    context. It keeps its frequency where r is large, and takes freq_scale times it where r is
    small; the weight of keeping falls linearly in i from 1 at floor(i with r = beta_fast) to 0 at
    ceil(i with r = beta_slow). The factor is 0.1 ln(1 / freq_scale) + 1.

    Shapes: -> (n_dims / 2,), (). Source: Peng et al. 2023 (YaRN), eq. 18 to 22, the linear ramp in
    i and its rounding from the authors' published code; ggml_rope_ext for ext_factor, by which
    the weight of keeping is multiplied.
    """
    i = np.arange(n_dims // 2, dtype=np.float64)
    plain = float(freq_base) ** (-2.0 * i / n_dims)

    def where(turns):
        """The i at which plain * n_ctx_orig = 2 pi turns."""
        return n_dims / 2 * np.log(n_ctx_orig / (2 * np.pi * turns)) / np.log(freq_base)

    first, last = np.floor(where(beta_fast)), np.ceil(where(beta_slow))
    first, last = np.clip([first, last], 0, n_dims - 1)
    keep = 1 - np.clip((i - first) / max(last - first, 0.001), 0, 1)
    keep = keep * ext_factor
    return plain * (keep + (1 - keep) * freq_scale), 0.1 * np.log(1 / freq_scale) + 1


def rope_yarn(x, pos, mode="norm", freq_factors=None, attn_factor=1.0, **params):
    """Rotation by YaRN's angles, times its factor and attn_factor. All of D is rotated.

    Shapes: x (..., T, H, D), pos (T,) -> (..., T, H, D). Source: as `yarn`.
    """
    n = np.shape(x)[-1]
    freq, factor = yarn(n, **params)
    if freq_factors is not None:
        freq = freq / np.asarray(freq_factors, np.float64)
    first = np.arange(0, n, 2) if mode == "norm" else np.arange(n // 2)
    second = first + (1 if mode == "norm" else n // 2)
    theta = np.asarray(pos, np.float64)[:, None] * freq
    return _rotate(x, first, second, theta) * factor * attn_factor
