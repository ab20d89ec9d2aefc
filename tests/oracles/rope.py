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
