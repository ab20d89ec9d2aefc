"""Distances between a result and its reference."""

import numpy as np


def nmse(a, b):
    """Normalised mean square error: sum (a - b)^2 / sum b^2, b being the reference.

    0 for equal arrays, inf when only the reference is zero, NaN when a NaN is on either side.

    Shapes: a, b of one shape -> float. Source: ggml's test-backend-ops measures errors this way.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"nmse: shapes {a.shape} and {b.shape} differ")
    error, power = float(np.sum((a - b) ** 2)), float(np.sum(b**2))
    if power == 0.0:
        return error if error == 0.0 or np.isnan(error) else float("inf")
    return error / power


def ulp_diff_f32(a, b):
    """Number of float32 values between a and b; -0 and +0 are one, NaN equals only NaN.

    The magnitude bits of a float count up with its value, so signed they order all floats.

    Shapes: a, b of one shape -> int64 of that shape; 2^32 where just one side is NaN.
    Source: IEEE 754-2019, 3.4: the encoding is monotonic in the magnitude.
    """
    a, b = np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)
    distance = np.abs(_order(a) - _order(b))
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    distance = np.where(nan_a != nan_b, np.int64(2**32), distance)
    return np.where(nan_a & nan_b, np.int64(0), distance)


def _order(x):
    """float32 -> int64 with the same order."""
    bits = x.view(np.uint32).astype(np.int64)
    magnitude = bits & 0x7FFFFFFF
    return np.where(bits >> 31, -magnitude, magnitude)
