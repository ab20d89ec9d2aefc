"""Elementary functions and activations in float64, elementwise: shapes (...) -> (...)."""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def scale(x, s, bias=0.0):
    """Linear x * s + bias, s and bias numbers. Source: ggml_scale."""
    return _f64(x) * s + bias


def clamp(x, min=-np.inf, max=np.inf):
    """The nearest of [min, max]; NaN stays. Source: numpy.clip; ggml_clamp."""
    return np.clip(_f64(x), min, max)


def leaky_relu(x, slope=0.1):
    """The identity, times slope below 0. Source: Maas et al. 2013."""
    x = _f64(x)
    with np.errstate(invalid="ignore"):
        return np.where(x < 0, slope * x, x)


def sqr(x):
    """The square. Source: arithmetic."""
    return _f64(x) ** 2


def sqrt(x):
    """The square root, NaN below 0. Source: IEEE 754-2019."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(_f64(x))


def neg(x):
    """The negation. Source: arithmetic."""
    return -_f64(x)


def abs(x):
    """The magnitude. Source: arithmetic."""
    return np.abs(_f64(x))


def relu(x):
    """0 below 0, else x; NaN stays. Source: Nair & Hinton 2010."""
    x = _f64(x)
    return np.where(x < 0, 0.0, x)


def step(x):
    """1 above 0, else 0, of NaN too. Source: ggml_step."""
    return (_f64(x) > 0).astype(np.float64)


def exp(x):
    """The exponential. Source: numpy."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(_f64(x))


def log(x):
    """The natural logarithm; -inf of 0, NaN below. Source: numpy."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(_f64(x))


def sin(x):
    """The sine of radians. Source: numpy."""
    with np.errstate(invalid="ignore"):
        return np.sin(_f64(x))


def cos(x):
    """The cosine of radians. Source: numpy."""
    with np.errstate(invalid="ignore"):
        return np.cos(_f64(x))


def tanh(x):
    """The hyperbolic tangent. Source: numpy."""
    return np.tanh(_f64(x))


def sigmoid(x):
    """The logistic function 1 / (1 + exp(-x)). Source: definition."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-_f64(x)))


def hardsigmoid(x):
    """The straight line x / 6 + 1 / 2, cut off at 0 and 1. Source: Howard et al. 2019."""
    return np.clip(_f64(x) / 6.0 + 0.5, 0.0, 1.0)


def softplus(x):
    """The integral of sigmoid, log(exp(0) + exp(x)). Source: Dugas et al. 2001."""
    x = _f64(x)
    with np.errstate(invalid="ignore", under="ignore"):
        return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _gated(x, z):
    """x * sigmoid(z), 0 where x is -inf."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(x == -np.inf, 0.0, x * sigmoid(z))


def silu(x):
    """Sigmoid-weighted x / (1 + exp(-x)). Source: Elfwing et al. 2017 (SiLU)."""
    x = _f64(x)
    return _gated(x, x)


def gelu(x):
    """0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).

    Source: Hendrycks & Gimpel 2016; 1 + tanh(u) = 2 sigmoid(2 u), which does not cancel.
    """
    x = _f64(x)
    with np.errstate(over="ignore"):
        return _gated(x, 2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def gelu_erf(x):
    """0.5 x (1 + erf(x / sqrt(2))) = 0.5 x erfc(-x / sqrt(2)). Source: Hendrycks & Gimpel 2016."""
    x = _f64(x)
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    with np.errstate(invalid="ignore"):
        return np.where(x == -np.inf, 0.0, 0.5 * x * erfc(-x / math.sqrt(2.0)))


def gelu_quick(x):
    """The cheap form x sigmoid(1.702 x). Source: Hendrycks & Gimpel 2016."""
    x = _f64(x)
    return _gated(x, 1.702 * x)
