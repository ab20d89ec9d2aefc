"""Joined, tiled and padded arrays, by numpy's functions of other names."""

import numpy as np


def concat(a, b, axis=-1):
    """b behind a along the axis.

    Shapes: a (..., n, ...), b (..., m, ...) -> (..., n + m, ...). Source: ggml_concat.
    """
    return np.concatenate([a, b], axis=axis)


def repeat(x, shape):
    """x tiled until shape is full: y[i, j, ...] = x[i mod n0, j mod n1, ...].

    Shapes: x (n0, ...) -> shape, of as many axes or more. Source: ggml_repeat.
    """
    x = np.asarray(x)
    x = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    reps = [n // m if m else 1 for n, m in zip(shape, x.shape, strict=True)]
    return np.tile(x, reps)


def pad(x, after, before=None):
    """Zeros before and after x along each axis.

    Shapes: x (n0, ...) -> (before[0] + n0 + after[0], ...). Source: ggml_pad_ext.
    """
    before = [0] * np.ndim(x) if before is None else before
    return np.pad(x, list(zip(before, after, strict=True)))
