"""Rows to numbers: sums, means, the largest element. Method names as numpy's are on Node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["argmax", "cumsum", "mean", "sum", "sum_rows"]


def sum(x: Any, *, dtype: DTypeLike | None = None) -> Node:  # ggml's name
    """The sum of all elements, added up in double and rounded once.

    Shapes: any -> ().        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand; without elements the sum is 0.
        dtype: of the result.

    Raises:
        DTypeError: an integer operand.
    Source: csrc/ops/reduce.c; ggml_sum.
    """
    return call_op("sum", x, dtype=dtype)


def sum_rows(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The sum of each row, added up in double and rounded once; the axis stays.

    Shapes: (..., N) -> (..., 1).        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand, at least one axis; a row without elements gives 0.
        dtype: of the result.

    Raises:
        ShapeError: x has no axis.
        DTypeError: an integer operand.
    Source: csrc/ops/reduce.c; ggml_sum_rows.
    """
    return call_op("sum_rows", x, dtype=dtype)


def mean(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The mean of each row: `sum_rows` divided by N, in double; the axis stays.

    Shapes: (..., N) -> (..., 1).        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand, at least one axis; a row without elements gives NaN.
        dtype: of the result.

    Raises:
        ShapeError: x has no axis.
        DTypeError: an integer operand.
    Source: csrc/ops/reduce.c; ggml_mean.
    """
    return call_op("mean", x, dtype=dtype)


def cumsum(x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """Running sums along the last axis: y[j] = x[0] + ... + x[j], in double, each rounded once.

    Shapes: (..., N) -> (..., N).        Dtypes: x any float; result f32 unless `dtype` is given.

    Args:
        x: the operand, at least one axis.
        dtype: of the result.

    Raises:
        ShapeError: x has no axis.
        DTypeError: an integer operand.
    Source: csrc/ops/reduce.c; ggml_cumsum.
    """
    return call_op("cumsum", x, dtype=dtype)


def argmax(x: Any) -> Node:
    """Where the largest element of each row is: the first of equals, the first NaN if there is one.

    Shapes: (..., N) -> (...), N at least 1.        Dtypes: x any float; result i32.

    Raises:
        ShapeError: x has no axis, or an empty last one.
        DTypeError: an integer operand.
    Source: csrc/ops/reduce.c; ggml_argmax; numpy.argmax for ties and NaN.
    """
    return call_op("argmax", x)
