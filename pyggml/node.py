"""Node, a value in a graph, and `call_op`, through which every op function adds one."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.dtypes import DTYPES, DType, f32, f64
from pyggml.dtypes import dtype as as_dtype
from pyggml.errors import (
    DTypeError,
    GraphError,
    ParameterError,
    PyggmlError,
    ReadOnlyError,
    ShapeError,
)
from pyggml.tensor import Tensor, _from_numbers, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyggml.dtypes import DTypeLike
    from pyggml.graph import Graph

_OPS = {row["name"]: number for number, row in enumerate(_core.op_table())}
_OPERANDS = {row["name"]: row["operands"] for row in _core.op_table()}
_F32_MAX = float(np.finfo(np.float32).max)
_SCALARS = (bool, int, float, np.bool_, np.integer, np.floating)
_COPY_HINT = " (it was given as numbers or an array that must be copied: write into a Tensor)"
_INDICES = ("ids", "pos")  # operands that are integers whatever the others are


class Node:
    """A value in a graph: shape and dtype are known, the numbers exist once a Program runs.

    Supports `+ - * /` with nodes, tensors, arrays, Python numbers and lists of them (numpy
    broadcasting), `@` (numpy's product), unary `-`, `abs`, the powers 2 and 0.5, and indexing by
    integers, slices, `...` and None (views). `sum`, `mean`, `argmax`, `argsort`, `cumsum` and
    `transpose` take axes as numpy's methods do.
    """

    __slots__ = ("_dtype", "_graph", "_id", "_shape")
    __array_priority__ = 1000  # array + node is a node
    __array_ufunc__ = None

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._id = number
        _, _, self._shape, kind, _, _, _ = graph._core.node(number)
        self._dtype = DTYPES[kind]

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
        """The name shown in messages, "" when it has none."""
        return str(self._graph._core.node(self._id)[1])

    @name.setter
    def name(self, value: str) -> None:
        self._graph._core.set_name(self._id, value)

    @property
    def op(self) -> str:
        """Name of the op that makes it, "input" or "const"."""
        return _kind_of(self._graph._core.node(self._id)[0])

    @property
    def src(self) -> tuple[Node | None, ...]:
        """The operands, None for an optional one that was left out."""
        ids = self._graph._core.node(self._id)[4]
        return tuple(Node(self._graph, i) if i >= 0 else None for i in ids)

    @property
    def T(self) -> Node:
        """The view with all axes reversed, as numpy's."""
        from pyggml import ops

        return ops.permute(self, tuple(reversed(range(self.ndim))))

    def reshape(self, *shape: Any) -> Node:
        """The elements in another shape: a tuple or its numbers. See `pyggml.ops.reshape`."""
        from pyggml import ops

        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Node:
        """The elements along one axis: a view where the memory is dense, else a copy."""
        return self.reshape(-1)

    def flatten(self) -> Node:
        """A copy of the elements along one axis."""
        from pyggml import ops

        return ops.cont(self.ravel())

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Node:
        """The view without axes of length 1: all of them, or those given.

        Raises:
            ShapeError: there is no such axis, or its length is not 1.
        """
        if axis is None:
            gone = [i for i, n in enumerate(self._shape) if n == 1]
        else:
            axes = axis if isinstance(axis, (tuple, list)) else (axis,)
            gone = [self._axis("squeeze", a) for a in axes]
            wrong = [a for a in gone if self._shape[a] != 1]
            if wrong:
                raise ShapeError(f"squeeze: axis {wrong[0]} of {self._shape} is not of length 1")
        return self[tuple(0 if i in gone else slice(None) for i in range(self.ndim))]

    def swapaxes(self, axis1: int, axis2: int) -> Node:
        """The view with two axes, axis1 and axis2, exchanged.

        Raises:
            ShapeError: there is no such axis.
        """
        from pyggml import ops

        a, b = self._axis("swapaxes", axis1), self._axis("swapaxes", axis2)
        order = list(range(self.ndim))
        order[a], order[b] = b, a
        return ops.permute(self, order)

    def _axis(self, what: str, axis: Any) -> int:
        number = operator.index(axis)
        if not -self.ndim <= number < self.ndim:
            raise ShapeError(f"{what}: there is no axis {number} in {self._shape}")
        return number % self.ndim

    def astype(self, dtype: DTypeLike) -> Node:
        """A copy in another dtype. See `pyggml.ops.cast`."""
        from pyggml import ops

        return ops.cast(self, dtype)

    def transpose(self, *axes: Any) -> Node:
        """The view with its axes in another order, numpy's transpose; without any: reversed."""
        from pyggml import ops

        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return ops.permute(self, order) if order else self.T

    def sum(
        self, axis: int | None = None, dtype: DTypeLike | None = None, *, keepdims: bool = False
    ) -> Node:
        """The sum along an axis or of all, f32 unless `dtype` is given. See `pyggml.ops.sum`.

        Args:
            axis: counted from the end when negative; None sums all.
            dtype: of the result.
            keepdims: the summed axes stay, of length 1.

        Raises:
            ShapeError: there is no such axis.
        """
        from pyggml import ops
        from pyggml.ops.axes import reduce_along

        if axis is None and not keepdims:
            return ops.sum(self, dtype=dtype)
        return reduce_along("sum", lambda x: ops.sum_rows(x, dtype=dtype), self, axis, keepdims)

    def mean(
        self, axis: int | None = None, dtype: DTypeLike | None = None, *, keepdims: bool = False
    ) -> Node:
        """The mean along an axis or of all, f32 unless `dtype` is given. See `pyggml.ops.mean`.

        Args:
            axis: counted from the end when negative; None takes all.
            dtype: of the result.
            keepdims: the axes that were taken together stay, of length 1.

        Raises:
            ShapeError: there is no such axis.
        """
        from pyggml import ops
        from pyggml.ops.axes import reduce_along

        return reduce_along("mean", lambda x: ops.mean(x, dtype=dtype), self, axis, keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Node:
        """Where the largest element is along an axis or of all. See `pyggml.ops.argmax`.

        Args:
            axis: counted from the end when negative; None takes all, in row-major order.
            keepdims: the axes that were taken together stay, of length 1.

        Raises:
            ShapeError: there is no such axis.
        """
        from pyggml import ops
        from pyggml.ops.axes import reduce_along

        return reduce_along("argmax", ops.argmax, self, axis, keepdims)

    def argsort(self, axis: int | None = -1) -> Node:
        """The indices that sort along an axis, stable. See `pyggml.ops.argsort`."""
        from pyggml import ops
        from pyggml.ops.axes import scan_along

        return scan_along("argsort", ops.argsort, self, axis)

    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None) -> Node:
        """Running sums along an axis or over all, f32 without `dtype`. See `pyggml.ops.cumsum`."""
        from pyggml import ops
        from pyggml.ops.axes import scan_along

        return scan_along("cumsum", lambda x: ops.cumsum(x, dtype=dtype), self, axis)

    def __getitem__(self, index: Any) -> Node:
        from pyggml import ops

        return ops.view(self, index)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d node")
        return self._shape[0]

    def __iter__(self) -> Iterator[Node]:
        return (self[i] for i in range(len(self)))

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

    def __neg__(self) -> Node:
        return call_op("scale", self, s=-1.0, bias=-0.0)

    def __abs__(self) -> Node:
        return call_op("abs", self)

    def __pow__(self, power: Any) -> Node:
        if not isinstance(power, _SCALARS) or power not in (2, 0.5):
            raise ParameterError(f"the powers of a node are 2 and 0.5, got {power!r}")
        return call_op("sqr" if power == 2 else "sqrt", self)

    def __matmul__(self, other: Any) -> Node:
        from pyggml import ops

        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Node:
        from pyggml import ops

        return ops.matmul(other, self)

    def __bool__(self) -> bool:
        raise GraphError("a node has no truth value: its numbers exist once a Program runs")

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise GraphError("a node has no values yet: compile the graph and run the Program")

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Node {self._id}{name}: {self.op} -> {self._shape} {self._dtype.name}>"


_KINDS = {number: name for name, number in _OPS.items()} | {
    _core.NODE_INPUT: "input",
    _core.NODE_CONST: "const",
}


def _kind_of(number: int) -> str:
    """Name of op `number`, "input" or "const"."""
    return _KINDS[number]


def _is_list(value: Any, depth: int = _core.MAX_DIMS) -> bool:
    """A list of numbers, or of such lists."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(v, _SCALARS) or (depth > 1 and _is_list(v, depth - 1)) for v in value
    )


def _is_weak(value: Any) -> bool:
    """A Python number or a list of them: it has no dtype of its own."""
    return isinstance(value, _SCALARS) or _is_list(value)


def as_node(graph: Graph, value: Any, kind: DType = f32) -> Node:
    """An operand as a node of the graph; numbers and lists of them as a constant of `kind`."""
    if isinstance(value, Node):
        return value
    if isinstance(value, _SCALARS):
        with np.errstate(over="ignore"):
            number = np.float32(value)
        return graph._capture(Tensor.from_raw(number.reshape(1), (), f32), copied=True)
    if _is_list(value):
        return graph._capture(tensor(_from_numbers(value, kind)), copied=True)
    return graph.const(value)


def _constant(graph: Graph, op: str, i: int, value: Any, operands: tuple[Any, ...]) -> Node:
    """Operand i, no node yet, as one."""
    if i < len(_OPERANDS[op]) and _OPERANDS[op][i] in _INDICES:
        return graph.const(value)
    return as_node(graph, value, _list_kind(op, operands))


def _list_kind(op: str, operands: tuple[Any, ...]) -> DType:
    """What the numbers of a list become: f32, or what the other operands only store."""
    for name, value in zip(_OPERANDS[op], operands, strict=False):
        if name not in _INDICES and isinstance(value, (Node, Tensor)) and not value.dtype.is_float:
            return value.dtype
    return f32


@contextmanager
def _operand_errors(op: str, i: int) -> Iterator[None]:
    try:
        yield
    except PyggmlError as e:
        raise type(e)(f"{op}: operand {_OPERANDS[op][i].rstrip('?')}: {e}") from None


def call_op(op: str, *operands: Any, **params: Any) -> Node:
    """Adds one node: the way every function in pyggml.ops builds.

    Args:
        op: name of the row in csrc/ops/op_table.inc.
        *operands: nodes, tensors, arrays, or None for an optional operand left out. The graph is
            that of the nodes among them. Python numbers and lists of them are F32 constants;
            lists are of the other operands' dtype where that is an integer or f64, and of
            integers where the operand is row numbers or positions.
        **params: the row's parameters, numpy order where they are per axis. `dtype` takes a name.

    Raises:
        GraphError: operands of two graphs, or none that belongs to one.
        ShapeError, DTypeError: as the op's `infer` decides.
        ParameterError: likewise, or there is no such op.
    """
    if op not in _OPS:
        raise ParameterError(f"there is no op {op!r}; there are {', '.join(_OPS)}")
    graph: Graph | None = None
    for value in operands:
        if isinstance(value, Node):
            if graph is not None and value._graph is not graph:
                raise GraphError(f"{op}: the operands belong to two graphs")
            graph = value._graph
    if graph is None:
        raise GraphError(f"{op}: no operand belongs to a graph; make one with g.input or g.const")
    with all_or_none(graph):
        ids = []
        for i, value in enumerate(operands):
            if isinstance(value, Node):
                ids.append(value._id)
            elif value is None:
                ids.append(-1)
            else:
                with _operand_errors(op, min(i, len(_OPERANDS[op]) - 1)):
                    ids.append(_constant(graph, op, i, value, operands)._id)
        while ids and ids[-1] == -1:
            ids.pop()
        if "dtype" in params:
            params["dtype"] = -1 if params["dtype"] is None else as_dtype(params["dtype"]).id
        try:
            return Node(graph, graph._core.op(_OPS[op], ids, params))
        except (DTypeError, ReadOnlyError) as e:
            raise type(e)(f"{e}{_hint(graph, op, e, ids)}") from None


def _hint(graph: Graph, op: str, e: PyggmlError, ids: list[int]) -> str:
    """What the caller may not know about a constant among the operands that were refused."""
    if isinstance(e, ReadOnlyError):
        written = graph._core.node(ids[_OPERANDS[op].index("dst")])[5]
        return _COPY_HINT if written in graph._copies else ""
    nodes = [graph._core.node(graph._core.node(i)[5]) for i in ids if i >= 0]
    wide = any(kind == f64.id and number == _core.NODE_CONST for number, _, _, kind, *_ in nodes)
    return " (a float64 array: .astype(np.float32) rounds it)" if wide else ""


class all_or_none:  # noqa: N801 - reads as what it is, a statement
    """While it lasts no other thread adds nodes, and an exception takes back those added in it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        self._graph._lock.acquire()
        self._n = len(self._graph)

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is not None:
                self._graph._forget(self._n)
        finally:
            self._graph._lock.release()


def _binary(op: str, a: Any, b: Any) -> Node:
    """An arithmetic operator; Python numbers are weak as in numpy and keep the node's dtype."""
    if not _is_weak(a) and not _is_weak(b):
        return call_op(op, a, b)
    node, value = (b, a) if _is_weak(a) else (a, b)
    keep = None if node.dtype.is_block else node.dtype
    if not isinstance(value, _SCALARS):
        return call_op(op, a, b, dtype=keep)
    number = float(value)
    if not abs(number) <= _F32_MAX:  # infinite in F32, or NaN: no factor, but a fine constant
        return call_op(op, a, b, dtype=keep)
    if op == "mul":
        return call_op("scale", node, s=number, bias=-0.0, dtype=keep)  # + 0 would lose -0
    if op == "add":
        return call_op("scale", node, s=1.0, bias=number, dtype=keep)
    if op == "sub" and node is a:
        return call_op("scale", node, s=1.0, bias=-number, dtype=keep)
    if op == "sub":
        return call_op("scale", node, s=-1.0, bias=number, dtype=keep)
    return call_op(op, a, b, dtype=keep)
