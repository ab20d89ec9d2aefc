"""Normalisations of the last axis in float64."""

import numpy as np


def rms_norm(x, weight=None, eps=1e-5):
    """Formula: x / sqrt(mean(x^2) + eps), times weight when given.

    Shapes: x (..., E), weight (E,) -> (..., E). Source: Zhang & Sennrich 2019 (RMSNorm).
    """
    x = np.asarray(x, dtype=np.float64)
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * np.asarray(weight, dtype=np.float64)


def norm(x, eps=1e-5):
    """Formula: (x - mean) / sqrt(variance + eps), the variance over N.

    Shapes: x (..., E) -> (..., E). Source: Ba et al. 2016 (layer normalisation), eq. 3; ggml_norm.
    """
    x = np.asarray(x, dtype=np.float64)
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)


def l2_norm(x, eps=1e-5):
    """Formula: x / max(sqrt(sum x^2), eps).

    Shapes: x (..., E) -> (..., E). Source: ggml_l2_norm.
    """
    x = np.asarray(x, dtype=np.float64)
    return x / np.maximum(np.sqrt(np.sum(x * x, axis=-1, keepdims=True)), eps)
