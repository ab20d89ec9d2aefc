"""Normalisations of the last axis in float64."""

import numpy as np


def rms_norm(x, weight=None, eps=1e-5):
    """Formula: x / sqrt(mean(x^2) + eps), times weight when given.

    Shapes: x (..., E), weight (E,) -> (..., E). Source: Zhang & Sennrich 2019 (RMSNorm).
    """
    x = np.asarray(x, dtype=np.float64)
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * np.asarray(weight, dtype=np.float64)
