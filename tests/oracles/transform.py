"""The Walsh-Hadamard transform as a matrix product."""

import numpy as np


def hadamard(n):
    """H[i, j] = (-1)^(number of ones in i & j), by Sylvester's doubling.

    Shapes: n a power of two -> (n, n). Source: Sylvester 1867.
    """
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def fwht(x, normalized=True):
    """x H, divided by sqrt(n) when normalized; natural order.

    Shapes: (..., N) -> (..., N). Source: Fino & Algazi 1976.
    """
    n = np.shape(x)[-1]
    y = np.asarray(x, np.float64) @ hadamard(n)
    return y / np.sqrt(n) if normalized else y
