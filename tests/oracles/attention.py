"""Attention with grouped kv heads, in float64."""

import numpy as np


def flash_attn_ext(q, k, v, mask=None, scale=1.0):
    """out[b, t, h] = sum over c of softmax_c(scale * q[b,h,t] . k[b,g,c] + mask[t,c]) * v[b,g,c].

    Query head h reads kv head g = h // (H / G). Only cells with mask > -inf take part: the others
    are not looked at, so NaN or inf stored there cannot leak. A row without cells gives zeros.

    Shapes: q (B, H, T, D), k (B, G, C, D), v (B, G, C, Dv), mask additive (T, C) or None
        -> (B, T, H, Dv).
    Source: Vaswani et al. 2017, eq. 1; Ainslie et al. 2023 (GQA); ggml_flash_attn_ext for layouts.
    """
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    n_batch, n_heads, n_tokens, _ = q.shape
    group = n_heads // k.shape[1]
    out = np.zeros((n_batch, n_tokens, n_heads, v.shape[-1]))
    bias = np.zeros((n_tokens, k.shape[2])) if mask is None else np.asarray(mask, np.float64)
    for t in range(n_tokens):
        cells = np.flatnonzero(bias[t] != -np.inf)
        if len(cells) == 0:
            continue
        for b in range(n_batch):
            for h in range(n_heads):
                keys, values = k[b, h // group, cells], v[b, h // group, cells]
                s = scale * (keys @ q[b, h, t]) + bias[t, cells]
                weight = np.exp(s - s.max())
                out[b, t, h] = (weight / weight.sum()) @ values
    return out


def causal_mask(n_tokens, n_past=0, n_cells=None):
    """Mask of tokens that follow n_past cached ones: cell c is open to token t if c <= n_past + t.

    Shapes: -> float64 (T, C) of 0 and -inf, C = n_cells or n_past + n_tokens.
    Source: Vaswani et al. 2017, 3.2.3.
    """
    n_cells = n_past + n_tokens if n_cells is None else n_cells
    cell, token = np.arange(n_cells)[None, :], np.arange(n_tokens)[:, None]
    return np.where(cell <= n_past + token, 0.0, -np.inf)
