"""Softmax of the last axis in float64."""

import numpy as np


def soft_max(x, mask=None, scale=1.0):
    """exp(s - max s) / sum exp(s - max s) with s = x * scale + mask.

    An entry masked with -inf weighs 0 whatever x holds there; a row without any other entry
    gives zeros.

    Shapes: x (..., T, C), mask additive, broadcast to x -> (..., T, C).
    Source: Goodfellow et al. 2016, 4.1 (shift by the maximum); ggml_soft_max_ext for the operands.
    """
    x = np.asarray(x, dtype=np.float64)
    mask = np.broadcast_to(np.float64(0) if mask is None else np.asarray(mask, np.float64), x.shape)
    s = np.where(mask == -np.inf, -np.inf, x * scale + np.where(mask == -np.inf, 0.0, mask))
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    empty = top == -np.inf
    weight = np.exp(s - np.where(empty, 0.0, top))
    return weight / np.where(empty, 1.0, weight.sum(axis=-1, keepdims=True))
