"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml import _core
from pyggml.call import placed, prepared
from pyggml.errors import GraphError, ShapeError
from pyggml.graph import Node, call_op
from pyggml.ops.rows import _ids
from pyggml.ops.views import reshape, transpose

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["matmul", "mul_mat", "mul_mat_id", "out_prod"]


def mul_mat(w: Any, x: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The product of x and w transposed: y[..., t, n] = sum over k of w[..., n, k] * x[..., t, k].

    Infinities and NaN reach the sums that they are part of, as in IEEE 754. Block formats sum codes
    before the scale: there partial sums have room for |x| up to about 1e30.

    Shapes: w (..., N, K), x (..., T, K) or (K,) -> (..., T, N) or (N,). Leading axes of x must be
        multiples of those of w: w is repeated, each of its matrices for a run of x's.
    Dtypes: any float on either side; result f32 unless `dtype` is given. Sums are made in f32.

    Raises:
        ShapeError: inner sizes that differ, leading axes that are no multiples.
        DTypeError: an integer operand.
    Source: csrc/ops/matmul.c; ggml_mul_mat for the order of the operands.
    """
    return call_op("mul_mat", w, x, dtype=dtype)


def mul_mat_id(w: Any, x: Any, ids: Any, *, dtype: DTypeLike | None = None) -> Node:
    """Products with matrices chosen by index: y[t, u] = w[ids[t, u]] x[t, u], a mixture's experts.

    Scales of the experts are `mul` nodes after it.

    Shapes: w (R, N, K), x (T, U, K) or (T, 1, K), which all U share, ids (T, U) -> (T, U, N).
    Dtypes: w and x any float, ids i32 or i64; result f32 unless `dtype` is given. Sums are made in
        f32.

    Args:
        w: the matrices, one an expert.
        x: the tokens.
        ids: matrix numbers in [0, R), of each token U. An index out of range raises RowIndexError
            when the Program runs.
        dtype: of the result.

    Raises:
        ShapeError: inner sizes that differ, ids that do not name U matrices a token.
        DTypeError: an integer w or x, ids that are no integers.
    Source: Shazeer et al. 2017 (mixture of experts); csrc/ops/matmul_id.c; ggml_mul_mat_id for the
        order of the operands.
    """
    return call_op("mul_mat_id", w, x, _ids(ids), dtype=dtype)


def out_prod(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The sum of outer products: y[..., n, m] = sum over k of a[..., k, m] * b[..., k, n].

    Shapes: a (..., K, M), b (..., K, N) -> (..., N, M). Leading axes of b must be multiples of
        those of a: a is repeated, each of its matrices for a run of b's.
    Dtypes: any float on either side; result f32 unless `dtype` is given. Sums are made in f32.

    Raises:
        ShapeError: sizes K that differ, leading axes that are no multiples.
        DTypeError: an integer operand.
    Source: csrc/ops/out_prod.c; ggml_out_prod for the order of the operands.
    """
    return call_op("out_prod", a, b, dtype=dtype)


def matmul(a: Any, b: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The product a @ b as in numpy, made of `mul_mat` and views.

    Shapes: (..., M, K) @ (..., K, N) -> (..., M, N), where one of the two has the leading axes of
        the result and those of the other broadcast to them; vectors as in numpy.
    Dtypes: any float; an operand of a block format cannot be transposed, so b may not be one.
        Result f32 unless `dtype` is given.

    Raises:
        ShapeError: shapes that do not fit.
        DTypeError: an integer operand.
        GraphError: neither operand is a node.
    Source: csrc/ops/matmul.c.
    """
    if not isinstance(a, Node) and not isinstance(b, Node):
        raise GraphError("matmul: no operand belongs to a graph; make one with g.input or g.const")
    graph = a.graph if isinstance(a, Node) else b.graph
    left, right = prepared("matmul", "a", a), prepared("matmul", "b", b)
    with _core.AllOrNone(graph):
        return _matmul(placed(graph, left), placed(graph, right), dtype)


def _matmul(left: Node, right: Node, dtype: DTypeLike | None) -> Node:
    if left.ndim == 0 or right.ndim == 0:
        raise ShapeError(f"matmul: a {left.shape} and b {right.shape}: a scalar has no product")
    inner = right.shape[-2] if right.ndim > 1 else right.shape[0]
    if left.shape[-1] != inner:
        raise ShapeError(f"matmul: inner sizes differ: a is {left.shape}, b is {right.shape}")
    if right.ndim == 1:
        column = mul_mat(reshape(right, (1, inner)), left, dtype=dtype)
        return reshape(column, left.shape[:-1])
    if left.ndim == 1:
        row = _product(reshape(left, (1, inner)), right, dtype)
        return reshape(row, (*row.shape[:-2], row.shape[-1]))
    return _product(left, right, dtype)


def _covers(big: tuple[int, ...], small: tuple[int, ...]) -> bool:
    """The leading axes `small` broadcast to `big` without changing it."""
    tail = big[len(big) - len(small) :] if len(small) <= len(big) else ()
    return len(small) <= len(big) and all(s in (1, n) for s, n in zip(small, tail, strict=True))


def _product(a: Node, b: Node, dtype: DTypeLike | None) -> Node:
    if _covers(a.shape[:-2], b.shape[:-2]):
        return mul_mat(transpose(b), a, dtype=dtype)
    if _covers(b.shape[:-2], a.shape[:-2]):  # the product's transpose repeats a instead
        return transpose(mul_mat(a, transpose(b), dtype=dtype))
    raise ShapeError(f"matmul: the leading axes of a {a.shape} and b {b.shape} do not fit")
