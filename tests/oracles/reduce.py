"""Sums, means and the largest element, in float64."""

import math

import numpy as np


def sum(x):
    """The exact sum of all elements, rounded to float64 once.

    Shapes: any -> (). Source: ggml_sum; Shewchuk 1997 (math.fsum).
    """
    return np.float64(math.fsum(np.asarray(x, np.float64).reshape(-1)))


def sum_rows(x):
    """The exact sum of each row.

    Shapes: (..., N) -> (..., 1). Source: ggml_sum_rows.
    """
    x = np.asarray(x, np.float64)
    rows = [math.fsum(row) for row in x.reshape(-1, x.shape[-1])] if x.size else []
    return np.array(rows or np.zeros(x.shape[:-1]), np.float64).reshape(*x.shape[:-1], 1)


def mean(x):
    """The sum of each row divided by its length.

    Shapes: (..., N) -> (..., 1). Source: ggml_mean.
    """
    return sum_rows(x) / np.shape(x)[-1]


def cumsum(x):
    """y[..., j] = x[..., 0] + ... + x[..., j].

    Shapes: (..., N) -> (..., N). Source: ggml_cumsum.
    """
    return np.cumsum(np.asarray(x, np.float64), axis=-1)


def argmax(x):
    """Index of the first largest element of each row, of the first NaN if it holds one.

    Shapes: (..., N) -> (...). Source: numpy.argmax.
    """
    return np.argmax(x, axis=-1)
