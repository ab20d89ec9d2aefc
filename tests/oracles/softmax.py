"""Softmax of the last axis in float64, and the causal mask."""

import numpy as np


def alibi_slopes(n_heads, max_bias):
    """The slopes of ALiBi: for 2^k heads the series 2^(-max_bias / 2^k), its square, ...; other
    numbers of heads continue with every second member of the series for the next power of two.

    Shapes: -> (n_heads,). Source: Press et al. 2022 (ALiBi), 3, whose series ends at 2^-8
    (max_bias 8), and their published rule for other head counts.
    """

    def series(n):
        return 2.0 ** (-max_bias / n * np.arange(1, n + 1))

    whole = 1
    while 2 * whole <= n_heads:
        whole *= 2
    return np.concatenate([series(whole), series(2 * whole)[::2]])[:n_heads]


def soft_max(x, mask=None, sinks=None, scale=1.0, max_bias=0.0):
    """exp(s - max s) / sum exp(s - max s) with s = x * scale + slope * mask.

    An entry masked with -inf weighs 0 whatever x holds there; a row without any other entry
    gives zeros. A sink is one more score of each head, in the maximum and in the sum.

    Shapes: x (..., T, C), mask additive, broadcast to x -> (..., T, C); with sinks (H,) or a
    max_bias above 0, x is (..., H, T, C).
    Source: Goodfellow et al. 2016, 4.1 (shift by the maximum); Xiao et al. 2024 and the
    "softmax with a learned denominator" of gpt-oss for sinks; ggml_soft_max_ext for the operands.
    """
    x = np.asarray(x, dtype=np.float64)
    mask = np.broadcast_to(np.float64(0) if mask is None else np.asarray(mask, np.float64), x.shape)
    gone = mask == -np.inf
    bias = np.where(gone, 0.0, mask)
    if max_bias > 0:
        bias = bias * alibi_slopes(x.shape[-3], max_bias)[:, None, None]
    s = np.where(gone, -np.inf, x * scale + bias)
    sink = np.float64(-np.inf)
    if sinks is not None:
        sink = np.asarray(sinks, np.float64)[:, None, None]
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    empty = top == -np.inf
    base = np.where(empty, 0.0, top)
    weight = np.exp(s - base)
    total = weight.sum(axis=-1, keepdims=True) + np.exp(sink - base)
    return weight / np.where(empty, 1.0, total)


def diag_mask_inf(x, n_past=0):
    """-inf where column > n_past + row.

    Shapes: (..., T, C) -> (..., T, C). Source: ggml_diag_mask_inf.
    """
    t, c = np.shape(x)[-2:]
    future = np.arange(c) > np.arange(t)[:, None] + n_past
    return np.where(future, -np.inf, np.asarray(x, np.float64))
