"""Copies: into dense memory, into another dtype, into an existing tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml.graph import Node, call_op

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["cast", "cont", "cpy", "dup"]


def cont(x: Node) -> Node:
    """A dense copy of x, whatever its strides.

    Shapes: any, kept.        Dtypes: any, kept.

    Raises:
        GraphError: x is no node.
    Source: csrc/ops/copy.c; ggml_cont.
    """
    return call_op("cont", x)


def dup(x: Node) -> Node:
    """The same as `cont`, by ggml's other name.

    Shapes: any, kept.        Dtypes: any, kept.

    Raises:
        GraphError: x is no node.
    Source: csrc/ops/copy.c; ggml_dup.
    """
    return cont(x)


def cast(x: Node, dtype: DTypeLike) -> Node:
    """A dense copy of x in another dtype; one rounding, to nearest even.

    Shapes: any, kept.
    Dtypes: any float or f64 to any of them, integers to as wide or wider ones, to floats and to
        f64. F8_E4M3 saturates at +-448.

    Raises:
        DTypeError: float to integer, an integer to a narrower one (values could be lost in
            silence), a dtype that is decoded only.
        ShapeError: a block format whose block does not divide the last axis.
    Source: csrc/ops/copy.c; ggml_cast.
    """
    return call_op("cast", x, dtype=dtype)


def cpy(x: Any, dst: Any) -> Node:
    """Writes x into dst and returns a view of dst; who reads dst later sees it.

    Shapes: x and dst alike -> the same.        Dtypes: as `cast`, to dst's own.

    Args:
        x: what is copied; not from the memory that dst covers (`cont` it first).
        dst: a writable Tensor, or a node, any strides.

    Raises:
        ShapeError: the shapes differ.
        DTypeError: a pair that `cast` refuses.
        ReadOnlyError: dst is read-only memory.
        GraphError: x lies in the memory of dst.
    Source: csrc/ops/copy.c; ggml_cpy.
    """
    return call_op("cpy", x, dst)
