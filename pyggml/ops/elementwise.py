"""Elementwise ops. Arithmetic broadcasts as numpy does, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike


def add(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The sum a + b.

    Shapes: a and b broadcast -> their common shape.
    Dtypes: any float. Equal scalar dtypes keep theirs, else f32; `dtype` overrides. Computed in
        f32, rounded once.

    Raises:
        ShapeError: shapes that do not broadcast.
        DTypeError: an integer operand.
    Source: csrc/ops/elementwise.c; ggml_add.
    """
    return call_op("add", a, b, dtype=dtype)


def sub(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The difference a - b. Shapes, dtypes and errors as `add`.

    Source: csrc/ops/elementwise.c; ggml_sub.
    """
    return call_op("sub", a, b, dtype=dtype)


def mul(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The product a * b. Shapes, dtypes and errors as `add`.

    Source: csrc/ops/elementwise.c; ggml_mul.
    """
    return call_op("mul", a, b, dtype=dtype)


def div(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The quotient a / b, IEEE results for b = 0. Shapes, dtypes and errors as `add`.

    Source: csrc/ops/elementwise.c; ggml_div.
    """
    return call_op("div", a, b, dtype=dtype)


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
    Source: csrc/ops/elementwise.c; ggml_scale, ggml_scale_bias.
    """
    return call_op("scale", x, s=s, bias=bias, dtype=dtype)


def silu(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The activation x / (1 + exp(-x)).

    Shapes: any, kept.        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

    Raises:
        DTypeError: an integer operand.
    Source: Elfwing et al. 2017 (SiLU); csrc/ops/elementwise.c.
    """
    return call_op("silu", x, dtype=dtype)


def swiglu(gate: Any, up: Any = None, *, dtype: DTypeLike | None = None) -> Node:
    """The gated activation silu(gate) * up; of one operand, its halves: silu(first) * second.

    Shapes: gate and up (..., F) -> (..., F); gate alone (..., 2F) -> (..., F).
    Dtypes: any float; equal scalar dtypes keep theirs, else f32; `dtype` overrides.

    Raises:
        ShapeError: shapes that differ; a last axis without two halves of whole blocks.
        DTypeError: an integer operand.
    Source: Shazeer 2020 (GLU variants); csrc/ops/elementwise.c; ggml_swiglu for the order.
    """
    return call_op("swiglu", gate, up, dtype=dtype)
