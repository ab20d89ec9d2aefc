"""Order of the elements of each row."""

from __future__ import annotations

from typing import Any

from pyggml.graph import Node, call_op

__all__ = ["argsort", "top_k"]


def argsort(x: Any, order: str = "asc") -> Node:
    """The indices that put each row in order. Stable: equal values keep theirs; NaN comes last.

    Shapes: (..., N) -> (..., N).        Dtypes: x any float; result i32.

    Args:
        x: the operand, at least one axis.
        order: "asc" or "desc"; NaN is last in both, and -0 equals 0.

    Raises:
        ShapeError: x has no axis, or one of more than 2^31 - 1 elements.
        ParameterError: another order.
        DTypeError: an integer operand.
    Source: csrc/ops/sort.c; ggml_argsort.
    """
    return call_op("argsort", x, order=order)


def top_k(x: Any, k: int) -> Node:
    """The indices of the k largest elements of each row, the largest first.

    The first k of `argsort(x, "desc")` (ggml leaves the order open), found without sorting the
    row when k is small: of equal values the lower index comes first, and NaN last.

    Shapes: (..., N) -> (..., k).        Dtypes: x any float; result i32.

    Args:
        x: the operand, at least one axis.
        k: how many, in [0, N].

    Raises:
        ShapeError: x has no axis, or one of more than 2^31 - 1 elements.
        ParameterError: k is negative or passes N.
        DTypeError: an integer operand.
    Source: csrc/ops/sort.c; ggml_top_k.
    """
    return call_op("top_k", x, k=k)
