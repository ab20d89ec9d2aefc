"""Node, a value in a graph: its operators, and the methods that numpy's arrays have."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any, Never, cast

import numpy as np

from pyggml import _core
from pyggml.checks import as_axes, as_axis, as_bool, as_name
from pyggml.dtypes import DTYPES, DType
from pyggml.errors import GraphError, ShapeError
from pyggml.rows import NAMES
from pyggml.tensor import _SCALARS, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyggml.dtypes import DTypeLike
    from pyggml.graph import Graph


class Node:
    """A value in a graph: shape and dtype are known, the numbers exist once a Program runs.

    Supports `+ - * /` with nodes, tensors, arrays, Python numbers and lists of them (numpy
    broadcasting), `@` (numpy's product), unary `-` and `+`, `abs`, the powers 2, 3, 4, 0.5, -0.5,
    -1 and -2, and indexing by integers, slices, `...` and None (views) or by one list or array of
    integers (`take`). The methods that numpy's arrays have too mean what they mean there, and so do
    numpy's functions of these names. Nodes are equal when they are the same node.
    """

    __slots__ = ("_dtype", "_graph", "_id", "_shape")

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._id = number
        info = graph._core.node(number)
        self._shape = info.shape
        self._dtype = DTYPES[info.dtype]

    @property
    def graph(self) -> Graph:
        """The graph this node belongs to."""
        return self._graph

    @property
    def id(self) -> int:
        """Number of the node in its graph."""
        return self._id

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis lengths, numpy order."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The dtype of the values."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size // self._dtype.block * self._dtype.itemsize

    @property
    def name(self) -> str:
        """The name shown in messages, "" when it has none; assigned, at most 63 bytes."""
        return str(self._graph._core.node(self._id).name)

    @name.setter
    def name(self, value: str) -> None:
        self._graph._core.set_name(self._id, as_name("name", value, _core.MAX_NAME))

    @property
    def op(self) -> str:
        """Name of the op that makes it, "input" or "const"."""
        return NAMES[self._graph._core.node(self._id).op]

    @property
    def src(self) -> tuple[Node | None, ...]:
        """The operands, None for an optional one that was left out."""
        ids = self._graph._core.node(self._id).src
        return tuple(Node(self._graph, i) if i >= 0 else None for i in ids)

    @property
    def T(self) -> Node:
        """The view with all axes reversed, as numpy's."""
        from pyggml import ops

        return ops.permute(self, tuple(reversed(range(self.ndim))))

    def reshape(self, *shape: Any) -> Node:
        """The elements in another shape: a tuple or its numbers. See `pyggml.ops.reshape`.

        Shapes: any -> shape, which may hold one -1.        Dtypes: any, kept.

        Raises:
            ShapeError: the element counts differ, more than one -1, cut blocks.
            ParameterError: a shape of other than integers.
        Source: csrc/ops/view.c.
        """
        from pyggml import ops

        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Node:
        """The elements along one axis: a view where the memory is dense, else a copy.

        Shapes: any -> (size,).        Dtypes: any, kept.

        Raises:
            OutOfMemoryError: there is no room for more nodes.
        Source: csrc/ops/view.c.
        """
        return self.reshape(-1)

    def flatten(self) -> Node:
        """A copy of the elements along one axis.

        Shapes: any -> (size,).        Dtypes: any, kept.

        Raises:
            OutOfMemoryError: there is no room for more nodes.
        Source: csrc/ops/copy.c.
        """
        from pyggml import ops

        return ops.cont(self).reshape(-1)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Node:
        """The view without axes of length 1: all of them, or those given.

        Shapes: (..., 1, ...) -> (..., ...).        Dtypes: any, kept.

        Args:
            axis: one or several, counted from the end when negative; None takes all of length 1.

        Raises:
            ShapeError: there is no such axis, or its length is not 1.
            ParameterError: an axis that is no integer.
        Source: csrc/ops/view.c.
        """
        if axis is None:
            gone = [i for i, n in enumerate(self._shape) if n == 1]
        else:
            gone = list(as_axes("squeeze", axis, self.ndim))
            wrong = [a for a in gone if self._shape[a] != 1]
            if wrong:
                raise ShapeError(f"squeeze: axis {wrong[0]} of {self._shape} is not of length 1")
        return self[tuple(0 if i in gone else slice(None) for i in range(self.ndim))]

    def swapaxes(self, axis1: int, axis2: int) -> Node:
        """The view with two axes, axis1 and axis2, exchanged.

        Shapes: (..., m, ..., n, ...) -> (..., n, ..., m, ...).
        Dtypes: any, kept; the last axis of a block format stays last.

        Raises:
            ShapeError: there is no such axis.
            ParameterError: an axis that is no integer.
        Source: csrc/ops/view.c.
        """
        from pyggml import ops

        a, b = (as_axis("swapaxes", axis, self.ndim) for axis in (axis1, axis2))
        order = list(range(self.ndim))
        order[a], order[b] = b, a
        return ops.permute(self, order)

    def astype(self, dtype: DTypeLike) -> Node:
        """A copy in another dtype. See `pyggml.ops.cast`.

        Shapes: any, kept.
        Dtypes: any float to any float, integers to wider ones and to floats.

        Raises:
            DTypeError: an unknown dtype, or a cast that could lose values: float to integer.
            ShapeError: a last axis that is not whole blocks of a block format.
        Source: csrc/ops/copy.c.
        """
        from pyggml import ops

        return ops.cast(self, dtype)

    def transpose(self, *axes: Any) -> Node:
        """The view with its axes in another order, numpy's transpose; without any: reversed.

        Shapes: (n0, n1, ...) -> (n_axes[0], n_axes[1], ...).
        Dtypes: any, kept; the last axis of a block format stays last.

        Raises:
            ShapeError: axes is not a permutation.
            ParameterError: an axis that is no integer.
        Source: csrc/ops/view.c.
        """
        from pyggml import ops

        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        reverse = order is None or (isinstance(order, tuple) and not order)
        return self.T if reverse else ops.permute(self, order)

    def sum(
        self,
        axis: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        *,
        keepdims: bool = False,
    ) -> Node:
        """The sum along axes or of all, f32 unless `dtype` is given. See `pyggml.ops.sum`.

        Shapes: any -> without the summed axes, which keepdims keeps with length 1.
        Dtypes: any float; result f32 unless `dtype` is given. Added up in double, rounded once.

        Args:
            axis: one or several, counted from the end when negative; None sums all.
            dtype: of the result.
            keepdims: the summed axes stay, of length 1.

        Raises:
            ShapeError: there is no such axis.
            ParameterError: an axis that is no integer.
            DTypeError: an integer node, an unknown dtype.
        Source: csrc/ops/reduce.c.
        """
        from pyggml import ops
        from pyggml.ops.axes import reduce_along

        if axis is None and not as_bool("sum: keepdims", keepdims):
            return ops.sum(self, dtype=dtype)
        return reduce_along("sum", lambda x: ops.sum_rows(x, dtype=dtype), self, axis, keepdims)

    def mean(
        self,
        axis: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        *,
        keepdims: bool = False,
    ) -> Node:
        """The mean along axes or of all, f32 unless `dtype` is given. See `pyggml.ops.mean`.

        Shapes: any -> without the averaged axes, which keepdims keeps with length 1.
        Dtypes: any float; result f32 unless `dtype` is given. Added up in double, rounded once.

        Args:
            axis: one or several, counted from the end when negative; None takes all.
            dtype: of the result.
            keepdims: the averaged axes stay, of length 1.

        Raises:
            ShapeError: there is no such axis.
            ParameterError: an axis that is no integer.
            DTypeError: an integer node, an unknown dtype.
        Source: csrc/ops/reduce.c.
        """
        from pyggml import ops
        from pyggml.ops.axes import reduce_along

        return reduce_along("mean", lambda x: ops.mean(x, dtype=dtype), self, axis, keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Node:
        """Where the largest element is along an axis or of all. See `pyggml.ops.argmax`.

        Shapes: any -> without the axis, which keepdims keeps with length 1.
        Dtypes: any float; result i32.

        Args:
            axis: counted from the end when negative; None takes all, in row-major order.
            keepdims: the axes that were taken together stay, of length 1.

        Raises:
            ShapeError: there is no such axis, or it is empty.
            ParameterError: an axis that is no integer.
            DTypeError: an integer node.
        Source: csrc/ops/reduce.c.
        """
        from pyggml import ops
        from pyggml.ops.axes import one_axis, reduce_along

        place = one_axis("argmax", axis, self.ndim)
        return reduce_along("argmax", ops.argmax, self, place, keepdims)

    def argsort(self, axis: int | None = -1) -> Node:
        """The indices that sort along an axis, stable. See `pyggml.ops.argsort`.

        Shapes: any, kept; (size,) when axis is None.        Dtypes: any float; result i32.

        Raises:
            ShapeError: there is no such axis.
            ParameterError: an axis that is no integer.
            DTypeError: an integer node.
        Source: csrc/ops/sort.c.
        """
        from pyggml import ops
        from pyggml.ops.axes import scan_along

        return scan_along("argsort", ops.argsort, self, axis)

    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None) -> Node:
        """Running sums along an axis or over all, f32 without `dtype`. See `pyggml.ops.cumsum`.

        Shapes: any, kept; (size,) when axis is None.
        Dtypes: any float; result f32 unless `dtype` is given.

        Raises:
            ShapeError: there is no such axis.
            ParameterError: an axis that is no integer.
            DTypeError: an integer node, an unknown dtype.
        Source: csrc/ops/reduce.c.
        """
        from pyggml import ops
        from pyggml.ops.axes import scan_along

        return scan_along("cumsum", lambda x: ops.cumsum(x, dtype=dtype), self, axis)

    def clip(self, min: float | None = None, max: float | None = None) -> Node:
        """The values brought into [min, max]; None is no bound. See `pyggml.ops.clamp`.

        Shapes: any, kept.
        Dtypes: any float; scalar dtypes keep theirs, block formats give f32.

        Raises:
            ParameterError: min is above max, or a bound is no number.
            DTypeError: an integer node.
        Source: csrc/ops/unary.c.
        """
        from pyggml import ops

        return ops.clamp(self, -inf if min is None else min, inf if max is None else max)

    def copy(self) -> Node:
        """A dense copy. See `pyggml.ops.cont`.

        Shapes: any, kept.        Dtypes: any, kept.

        Raises:
            OutOfMemoryError: there is no room for more nodes.
        Source: csrc/ops/copy.c.
        """
        from pyggml import ops

        return ops.cont(self)

    def dot(self, b: Any) -> Node:
        """The product self @ b of matrices and vectors. See `pyggml.ops.matmul`.

        Shapes: (M, K) with (K, N) -> (M, N); a vector (K,) on either side takes its axis away.
        Dtypes: any float; result f32.

        Args:
            b: the right operand, of one or two axes.

        Raises:
            ShapeError: inner sizes that differ, or more than two axes, where numpy's `dot` is not
                `@`.
            DTypeError: an integer operand.
        Source: csrc/ops/matmul.c.
        """
        from pyggml import ops
        from pyggml.call import shape_of

        if self.ndim > 2 or len(shape_of("dot", "b", b)) > 2:
            raise ShapeError("dot: more than two axes; see ops.matmul, which numpy calls matmul")
        return ops.matmul(self, b)

    def take(self, indices: Any, axis: int | None = None) -> Node:
        """The elements, or parts along an axis, that indices name. See `pyggml.ops.get_rows`.

        Shapes: (..., n, ...) -> (..., *indices.shape, ...); at most 4 axes.
        Dtypes: any; scalar dtypes keep theirs, block formats give f32. Indices i32 or i64.

        Args:
            indices: integers: a node, or an array or list, whose negative numbers count from the
                end.
            axis: counted from the end when negative; None takes from all elements in a row.

        Raises:
            RowIndexError: a number of an array or list that is out of range; those of a node are
                checked when the Program runs.
            ShapeError: there is no such axis.
            ParameterError: an axis that is no integer.
            DTypeError: indices that are no integers.
        Source: csrc/ops/gather.c.
        """
        from pyggml.ops.axes import take_along

        return take_along(self, indices, axis)

    def __getitem__(self, index: Any) -> Node:
        from pyggml import ops
        from pyggml.ops.axes import take_index

        taken = take_index(self, index)
        return ops.view(self, index) if taken is None else taken

    def __setitem__(self, index: Any, value: Any) -> Never:
        raise GraphError(
            "a node is not assigned to: ops.cpy(value, x[index]) and ops.set write into its memory"
        )

    def __contains__(self, value: Any) -> Never:
        raise GraphError("a node has no values yet: compile the graph and run the Program")

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d node")
        return self._shape[0]

    def __iter__(self) -> Iterator[Node]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Node):
            return self._graph is other._graph and self._id == other._id
        if isinstance(other, (Tensor, np.ndarray, *_SCALARS)):
            raise GraphError("a node has no values to compare, and there is no op that compares")
        return NotImplemented

    def __hash__(self) -> int:
        return hash((id(self._graph), self._id))

    def __add__(self, other: Any) -> Node:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Node:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Node:
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> Node:
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> Node:
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> Node:
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> Node:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return _binary("div", other, self)

    def __matmul__(self, other: Any) -> Node:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Node:
        return _binary("matmul", other, self)

    def __pow__(self, power: Any) -> Node:
        from pyggml.call import power_of

        return power_of(self, power)

    def __pos__(self) -> Node:
        return self

    def __neg__(self) -> Node:
        from pyggml.call import call_op

        return call_op("scale", self, s=-1.0, bias=-0.0)

    def __abs__(self) -> Node:
        from pyggml.call import call_op

        return call_op("abs", self)

    def __bool__(self) -> bool:
        raise GraphError("a node has no truth value: its numbers exist once a Program runs")

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise GraphError("a node has no values yet: compile the graph and run the Program")

    __float__ = __int__ = __complex__ = __array__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from pyggml.numpy_functions import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, function: Any, _types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        from pyggml.numpy_functions import call_function

        return call_function(function, args, kwargs)

    def __copy__(self) -> Node:
        return self

    def __reduce__(self) -> Never:
        raise TypeError("a node belongs to its graph: it is not pickled and has no deep copy")

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Node {self._id}{name}: {self.op} -> {self._shape} {self._dtype.name}>"


def _binary(op: str, a: Any, b: Any) -> Node:
    from pyggml.call import binary

    return cast("Node", binary(op, a, b))  # or NotImplemented, which operators may return
