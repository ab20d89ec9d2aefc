"""Elementwise ops of two operands. Arithmetic broadcasts as numpy does, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = [
    "add",
    "add1",
    "div",
    "geglu",
    "geglu_erf",
    "geglu_quick",
    "mul",
    "reglu",
    "sub",
    "swiglu",
]


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
    """The difference a - b.

    Shapes: a and b broadcast -> their common shape.
    Dtypes: any float. Equal scalar dtypes keep theirs, else f32; `dtype` overrides. Computed in
        f32, rounded once.

    Raises:
        ShapeError: shapes that do not broadcast.
        DTypeError: an integer operand.
    Source: csrc/ops/elementwise.c; ggml_sub.
    """
    return call_op("sub", a, b, dtype=dtype)


def mul(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The product a * b.

    Shapes: a and b broadcast -> their common shape.
    Dtypes: any float. Equal scalar dtypes keep theirs, else f32; `dtype` overrides. Computed in
        f32, rounded once.

    Raises:
        ShapeError: shapes that do not broadcast.
        DTypeError: an integer operand.
    Source: csrc/ops/elementwise.c; ggml_mul.
    """
    return call_op("mul", a, b, dtype=dtype)


def div(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The quotient a / b, IEEE results for b = 0.

    Shapes: a and b broadcast -> their common shape.
    Dtypes: any float. Equal scalar dtypes keep theirs, else f32; `dtype` overrides. Computed in
        f32, rounded once.

    Raises:
        ShapeError: shapes that do not broadcast.
        DTypeError: an integer operand.
    Source: csrc/ops/elementwise.c; ggml_div.
    """
    return call_op("div", a, b, dtype=dtype)


def add1(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The sum a + b of a tensor and one number, which is known only when the Program runs.

    A number known before is the `bias` of `scale`.

    Shapes: a any, b of one element, whatever its axes -> a's.
    Dtypes: any float. Equal scalar dtypes keep theirs, else f32; `dtype` overrides. Computed in
        f32, rounded once.

    Raises:
        ShapeError: b has not one element.
        DTypeError: an integer operand.
    Source: csrc/ops/elementwise.c; ggml_add1.
    """
    return call_op("add1", a, b, dtype=dtype)


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


def geglu(gate: Any, up: Any = None, *, dtype: DTypeLike | None = None) -> Node:
    """The gated activation gelu(gate) * up; of one operand, its halves: gelu(first) * second.

    `gelu` is the one with tanh; its accuracy is that of `gelu`.

    Shapes: gate and up (..., F) -> (..., F); gate alone (..., 2F) -> (..., F).
    Dtypes: any float; equal scalar dtypes keep theirs, else f32; `dtype` overrides.

    Raises:
        ShapeError: shapes that differ; a last axis without two halves of whole blocks.
        DTypeError: an integer operand.
    Source: Shazeer 2020 (GLU variants); csrc/ops/elementwise.c; ggml_geglu for the order.
    """
    return call_op("geglu", gate, up, dtype=dtype)


def geglu_erf(gate: Any, up: Any = None, *, dtype: DTypeLike | None = None) -> Node:
    """The gated activation gelu_erf(gate) * up; or gelu_erf(first half) * second half.

    The accuracy is that of `gelu_erf`.

    Shapes: gate and up (..., F) -> (..., F); gate alone (..., 2F) -> (..., F).
    Dtypes: any float; equal scalar dtypes keep theirs, else f32; `dtype` overrides.

    Raises:
        ShapeError: shapes that differ; a last axis without two halves of whole blocks.
        DTypeError: an integer operand.
    Source: Shazeer 2020 (GLU variants); csrc/ops/elementwise.c; ggml_geglu_erf for the order.
    """
    return call_op("geglu_erf", gate, up, dtype=dtype)


def geglu_quick(gate: Any, up: Any = None, *, dtype: DTypeLike | None = None) -> Node:
    """The gated activation gelu_quick(gate) * up; or gelu_quick(first half) * second half.

    The accuracy is that of `gelu_quick`.

    Shapes: gate and up (..., F) -> (..., F); gate alone (..., 2F) -> (..., F).
    Dtypes: any float; equal scalar dtypes keep theirs, else f32; `dtype` overrides.

    Raises:
        ShapeError: shapes that differ; a last axis without two halves of whole blocks.
        DTypeError: an integer operand.
    Source: Shazeer 2020 (GLU variants); csrc/ops/elementwise.c; ggml_geglu_quick for the order.
    """
    return call_op("geglu_quick", gate, up, dtype=dtype)


def reglu(gate: Any, up: Any = None, *, dtype: DTypeLike | None = None) -> Node:
    """The gated activation relu(gate) * up; of one operand, its halves: relu(first) * second.

    One rounding, that of the product. A NaN on either side stays.

    Shapes: gate and up (..., F) -> (..., F); gate alone (..., 2F) -> (..., F).
    Dtypes: any float; equal scalar dtypes keep theirs, else f32; `dtype` overrides.

    Raises:
        ShapeError: shapes that differ; a last axis without two halves of whole blocks.
        DTypeError: an integer operand.
    Source: Shazeer 2020 (GLU variants); csrc/ops/elementwise.c; ggml_reglu for the order.
    """
    return call_op("reglu", gate, up, dtype=dtype)
