"""Elementwise ops in float64; shapes broadcast as numpy does."""

import numpy as np

from . import unary


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def add(a, b):
    """The sum a + b. Shapes: a, b broadcast -> their common shape. Source: arithmetic."""
    return _f64(a) + _f64(b)


def add1(a, b):
    """The sum of a and one number.

    Shapes: a (...), b of one element -> (...). Source: ggml_add1.
    """
    return _f64(a) + _f64(b).reshape(())


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


def swiglu(gate, up):
    """Gated unit silu(gate) * up.

    Shapes: gate, up (..., F) -> (..., F). Source: Shazeer 2020 (GLU variants).
    """
    return unary.silu(gate) * _f64(up)


def swiglu_split(x, swapped=False):
    """Gated unit of one tensor: its first half is the gate, its second `up`; or swapped.

    Shapes: x (..., 2F) -> (..., F). Source: Shazeer 2020; ggml_swiglu for the order.
    """
    first, second = np.split(_f64(x), 2, axis=-1)
    return swiglu(second, first) if swapped else swiglu(first, second)


def _halves(gate, up):
    return np.split(_f64(gate), 2, axis=-1) if up is None else (_f64(gate), _f64(up))


def geglu(gate, up=None):
    """Gated unit gelu(gate) * up, or of the halves of gate.

    Shapes: gate, up (..., F) -> (..., F); gate (..., 2F) -> (..., F). Source: Shazeer 2020.
    """
    gate, up = _halves(gate, up)
    return unary.gelu(gate) * up


def geglu_erf(gate, up=None):
    """Gated unit gelu_erf(gate) * up. Shapes, source: as geglu."""
    gate, up = _halves(gate, up)
    return unary.gelu_erf(gate) * up


def geglu_quick(gate, up=None):
    """Gated unit gelu_quick(gate) * up. Shapes, source: as geglu."""
    gate, up = _halves(gate, up)
    return unary.gelu_quick(gate) * up


def reglu(gate, up=None):
    """Gated unit relu(gate) * up. Shapes, source: as geglu."""
    gate, up = _halves(gate, up)
    return unary.relu(gate) * up
