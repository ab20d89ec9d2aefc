"""Elementwise ops of one operand: elementary functions and activations.

All compute in f32 and round once to the result's dtype. Accuracies are in units of the last place
of an f32 result (2^-23 of it), before that rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = [
    "abs",
    "clamp",
    "cos",
    "exp",
    "gelu",
    "gelu_erf",
    "gelu_quick",
    "hardsigmoid",
    "leaky_relu",
    "log",
    "neg",
    "relu",
    "scale",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqr",
    "sqrt",
    "step",
    "tanh",
]


def scale(x: Any, s: float, bias: float = 0.0, *, dtype: DTypeLike | None = None) -> Node:
    """Scaling: x * s + bias.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Args:
        x: the operand.
        s: finite factor, rounded to f32.
        bias: finite summand, rounded to f32.
        dtype: of the result.

    Raises:
        ParameterError: s or bias is NaN or infinite (in f32).
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_scale, ggml_scale_bias.
    """
    return call_op("scale", x, s=s, bias=bias, dtype=dtype)


def clamp(
    x: Any, min: float = -math.inf, max: float = math.inf, *, dtype: DTypeLike | None = None
) -> Node:
    """The values of x, brought into [min, max]; exact. NaN stays NaN.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Args:
        x: the operand.
        min: lower bound, rounded to f32; may be infinite.
        max: upper bound, likewise; at least min.
        dtype: of the result.

    Raises:
        ParameterError: min is above max, or one of them is NaN.
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_clamp.
    """
    return call_op("clamp", x, min=min, max=max, dtype=dtype)


def leaky_relu(x: Any, slope: float = 0.1, *, dtype: DTypeLike | None = None) -> Node:
    """The activation x where x >= 0, slope * x below; one rounding. NaN stays NaN.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Args:
        x: the operand.
        slope: finite factor of the negative side, rounded to f32.
        dtype: of the result.

    Raises:
        ParameterError: slope is NaN or infinite (in f32).
        DTypeError: an integer operand.
    Source: Maas et al. 2013; csrc/ops/unary.c; ggml_leaky_relu.
    """
    return call_op("leaky_relu", x, slope=slope, dtype=dtype)


def sqr(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The square x * x, rounded once.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_sqr.
    """
    return call_op("sqr", x, dtype=dtype)


def sqrt(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The square root, correctly rounded; NaN below 0, -0 of -0.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: IEEE 754-2019, 5.4.1; csrc/ops/unary.c; ggml_sqrt.
    """
    return call_op("sqrt", x, dtype=dtype)


def neg(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The negation -x; exact.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_neg.
    """
    return call_op("neg", x, dtype=dtype)


def abs(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The magnitude |x|; exact.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_abs.
    """
    return call_op("abs", x, dtype=dtype)


def relu(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation max(x, 0); exact. NaN stays NaN.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Nair & Hinton 2010; csrc/ops/unary.c; ggml_relu.
    """
    return call_op("relu", x, dtype=dtype)


def step(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The step 1 where x > 0, else 0; 0 for NaN, too, which is not above 0.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_step.
    """
    return call_op("step", x, dtype=dtype)


def exp(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The exponential e^x, within 2 units; infinity above 88.73, 0 below -103.98.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Cody & Waite 1980; csrc/ops/unary.c; ggml_exp.
    """
    return call_op("exp", x, dtype=dtype)


def log(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The natural logarithm, within 2 units; -inf of 0 and -0, NaN below 0.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Cody & Waite 1980; csrc/ops/unary.c; ggml_log.
    """
    return call_op("log", x, dtype=dtype)


def sin(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The sine of x in radians, within 2 units for every finite x; NaN of infinities.

    Beyond |x| = 2^20 the C library computes it, one element at a time.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Cody & Waite 1980; csrc/ops/unary.c; ggml_sin.
    """
    return call_op("sin", x, dtype=dtype)


def cos(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The cosine of x in radians, within 2 units for every finite x; NaN of infinities.

    Beyond |x| = 2^20 the C library computes it, one element at a time.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Cody & Waite 1980; csrc/ops/unary.c; ggml_cos.
    """
    return call_op("cos", x, dtype=dtype)


def tanh(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The hyperbolic tangent, within 2 units.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Cody & Waite 1980; csrc/ops/unary.c; ggml_tanh.
    """
    return call_op("tanh", x, dtype=dtype)


def sigmoid(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation 1 / (1 + exp(-x)), within 3 units on both sides.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: csrc/ops/unary.c; ggml_sigmoid.
    """
    return call_op("sigmoid", x, dtype=dtype)


def hardsigmoid(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation min(max(x + 3, 0), 6) / 6, within 2 units: straight lines for `sigmoid`.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Howard et al. 2019 (MobileNetV3); csrc/ops/unary.c; ggml_hardsigmoid.
    """
    return call_op("hardsigmoid", x, dtype=dtype)


def softplus(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation log(1 + exp(x)), within 2 units on both sides: x where that is large.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Dugas et al. 2001; csrc/ops/unary.c; ggml_softplus.
    """
    return call_op("softplus", x, dtype=dtype)


def silu(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation x / (1 + exp(-x)), within 3 units above -87, an absolute 2^-142 below.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Elfwing et al. 2017 (SiLU); csrc/ops/unary.c; ggml_silu.
    """
    return call_op("silu", x, dtype=dtype)


def gelu(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation x (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3).

    Within 4 + 4 |u| units where x is negative: exp(2 u), which decays there, takes u rounded.
    `gelu_erf` is what it approximates.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Hendrycks & Gimpel 2016; csrc/ops/unary.c; ggml_gelu.
    """
    return call_op("gelu", x, dtype=dtype)


def gelu_erf(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation x (1 + erf(x / sqrt(2))) / 2, within 5 units on both sides.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Hendrycks & Gimpel 2016; csrc/ops/unary.c; ggml_gelu_erf.
    """
    return call_op("gelu_erf", x, dtype=dtype)


def gelu_quick(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation x sigmoid(1.702 x).

    Within 4 + 2 |x| units where x is negative: exp(1.702 x), which decays there, takes a rounded
    product.

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Hendrycks & Gimpel 2016; csrc/ops/unary.c; ggml_gelu_quick.
    """
    return call_op("gelu_quick", x, dtype=dtype)
