"""Writes into a region of an array: start and step an axis, extent as x has."""

import numpy as np


def _where(x, start, step):
    start = (0,) * x.ndim if start is None else start
    step = (1,) * x.ndim if step is None else step
    return np.ix_(*(a + s * np.arange(n) for a, s, n in zip(start, step, x.shape, strict=True)))


def acc(dst, x, start=None, step=None):
    """A copy of dst in float64 with x added to the region. Source: ggml_acc; numpy."""
    out, x = np.array(dst, np.float64), np.asarray(x, np.float64)
    out[_where(x, start, step)] += x
    return out


def set(dst, x, start=None, step=None):
    """A copy of dst, its dtype kept, with x in the region. Source: ggml_set; numpy."""
    out, x = np.array(dst), np.asarray(x)
    out[_where(x, start, step)] = x
    return out
