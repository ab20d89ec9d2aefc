"""Elementwise ops in float64; shapes broadcast as numpy does."""

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def add(a, b):
    """The sum a + b. Shapes: a, b broadcast -> their common shape. Source: arithmetic."""
    return _f64(a) + _f64(b)


def sub(a, b):
    """The difference a - b. Shapes: a, b broadcast -> their common shape. Source: arithmetic."""
    return _f64(a) - _f64(b)


def mul(a, b):
    """The product a * b. Shapes: a, b broadcast -> their common shape. Source: arithmetic."""
    return _f64(a) * _f64(b)


def div(a, b):
    """The quotient a / b, IEEE results for b = 0.

    Shapes: a, b broadcast. Source: IEEE 754-2019, 7.3.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _f64(a) / _f64(b)


def scale(x, s, bias=0.0):
    """Linear x * s + bias. Shapes: x (...), s and bias numbers -> (...). Source: ggml_scale."""
    return _f64(x) * s + bias


def silu(x):
    """Sigmoid-weighted x / (1 + exp(-x)).

    Shapes: x (...) -> (...). Source: Elfwing et al. 2017 (SiLU).
    """
    x = _f64(x)
    with np.errstate(over="ignore"):  # exp(-x) = inf is right: the quotient is -0
        return x / (1.0 + np.exp(-x))


def swiglu(gate, up):
    """Gated unit silu(gate) * up.

    Shapes: gate, up (..., F) -> (..., F). Source: Shazeer 2020 (GLU variants).
    """
    return silu(gate) * _f64(up)


def swiglu_split(x, swapped=False):
    """Gated unit of one tensor: its first half is the gate, its second `up`; or swapped.

    Shapes: x (..., 2F) -> (..., F). Source: Shazeer 2020; ggml_swiglu for the order.
    """
    first, second = np.split(_f64(x), 2, axis=-1)
    return swiglu(second, first) if swapped else swiglu(first, second)
