"""Graphs in Python: Node, Graph, Program, and `call_op`, through which every op function goes."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.dtypes import DTYPES, DType, f32
from pyggml.dtypes import dtype as as_dtype
from pyggml.errors import DTypeError, GraphError, ParameterError, PyggmlError, ShapeError
from pyggml.tensor import Tensor, _shape_tuple, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyggml.dtypes import DTypeLike

_OPS = {row["name"]: number for number, row in enumerate(_core.op_table())}
_OPERANDS = {row["name"]: row["operands"] for row in _core.op_table()}
_SCALARS = (bool, int, float, np.bool_, np.integer, np.floating)


class Node:
    """A value in a graph: shape and dtype are known, the numbers exist once a Program runs.

    Supports `+ - * /` with nodes, tensors, arrays and Python scalars (numpy broadcasting), `@`
    (numpy's product), unary `-`, `abs`, the powers 2 and 0.5, and indexing by integers, slices,
    `...` and None (views).
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
    def name(self) -> str:
        """The name shown in messages, "" when it has none."""
        return str(self._graph._core.node(self._id)[1])

    @name.setter
    def name(self, value: str) -> None:
        self._graph._core.set_name(self._id, value)

    @property
    def op(self) -> str:
        """Name of the op that makes it, "input" or "const"."""
        number = self._graph._core.node(self._id)[0]
        if number == _core.NODE_INPUT:
            return "input"
        if number == _core.NODE_CONST:
            return "const"
        return str(_core_op_name(number))

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
        """See `pyggml.ops.reshape`."""
        from pyggml import ops

        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: DTypeLike) -> Node:
        """See `pyggml.ops.cast`."""
        from pyggml import ops

        return ops.cast(self, dtype)

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


class Graph:
    """A graph under construction; a wrong shape, dtype or parameter raises where it is built."""

    def __init__(self) -> None:
        self._core = _core.Graph()
        self._consts: dict[int, tuple[Tensor, Node]] = {}

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike = f32) -> Node:
        """A slot that each run fills by copy.

        Args:
            name: keyword under which the Program takes it; unique in the graph.
            shape: numpy order, fixed.
            dtype: any dtype.

        Raises:
            GraphError: the name is taken.
            ParameterError: an empty or overlong name, or "out", which a Program's call has already.
            ShapeError: a negative axis, more than 4 axes, or a last axis that is not whole blocks.
        """
        if name == "out":
            raise ParameterError("input: 'out' names the arrays that a Program fills")
        return Node(self, self._core.input(name, as_dtype(dtype).id, _shape_tuple(shape)))

    def const(self, value: Any, name: str | None = None) -> Node:
        """A Tensor (or numpy array) captured without a copy; the same Tensor gives the same node.

        Raises:
            DTypeError: an array whose dtype is none of pyggml's.
        """
        t = value if isinstance(value, Tensor) else tensor(value, name)
        known = self._consts.get(id(t))
        if known is not None:
            return known[1]
        label = name or t.name or ""
        number = self._core.const(t.raw(), t.dtype.id, t.shape, label, t.writable)
        node = Node(self, number)
        self._consts[id(t)] = (t, node)
        return node

    def compile(
        self,
        outputs: Node | Sequence[Node],
        threads: int | None = None,
        *,
        arena: _core.Arena | None = None,
        planned: bool = True,
    ) -> Program:
        """A Program that computes the outputs, with all of its memory planned and allocated.

        Besides the outputs it runs every write into a Tensor (`cpy`, `set_rows`) that the graph
        holds.

        Args:
            outputs: a node (the Program returns an array) or a sequence of nodes (it returns a
                tuple).
            threads: threads to use; None takes the physical cores available to the process,
                floored by the cgroup's CPU quota.
            arena: memory shared with other Programs that never run at the same time.
            planned: False gives every node memory of its own (for debugging).

        Raises:
            GraphError: a node of another graph.
            ParameterError: threads outside 1..256.
            OutOfMemoryError: the arena does not fit the machine.
        """
        many = not isinstance(outputs, Node)
        nodes: tuple[Node, ...] = tuple(outputs) if not isinstance(outputs, Node) else (outputs,)
        for node in nodes:
            if not isinstance(node, Node) or node.graph is not self:
                raise GraphError(f"compile: {node!r} is not a node of this graph")
        if threads is not None and not 1 <= operator.index(threads) <= _core.MAX_THREADS:
            raise ParameterError(
                f"compile: threads must be in [1, {_core.MAX_THREADS}], got {threads}"
            )
        return Program(self, nodes, threads or 0, arena, planned, many)

    def __len__(self) -> int:
        return len(self._core)

    def nodes(self) -> list[Node]:
        """All nodes in build order."""
        return [Node(self, i) for i in range(len(self))]

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} nodes>"


class Program:
    """A compiled graph: `prog(x=...)` runs it, without the GIL, allocating nothing in C."""

    def __init__(
        self,
        graph: Graph,
        outputs: tuple[Node, ...],
        threads: int,
        arena: _core.Arena | None,
        planned: bool,
        many: bool,
    ) -> None:
        flags = 0 if planned else 1
        self._core = _core.Program(graph._core, [n.id for n in outputs], threads, arena, flags)
        inputs = [Node(graph, i) for i in self._core.inputs]
        self._inputs = [(n.name, n.shape, n.dtype) for n in inputs]
        self._outputs = [(n.shape, n.dtype) for n in outputs]
        self._known = {name for name, _, _ in self._inputs}
        self._many = many

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], DType]]:
        """Name -> (shape, dtype) of each input that the outputs need."""
        return {name: (shape, kind) for name, shape, kind in self._inputs}

    @property
    def threads(self) -> int:
        """Threads that a run uses."""
        return int(self._core.threads)

    @property
    def n_nodes(self) -> int:
        """Nodes that were kept."""
        return int(self._core.n_nodes)

    @property
    def arena_bytes(self) -> int:
        """Bytes of arena that a run uses, scratch included."""
        return int(self._core.arena_bytes)

    def __call__(self, /, *, out: Any = None, **inputs: Any) -> Any:
        """Runs once.

        Args:
            out: array, or sequence of arrays, to fill instead of new ones: dense, of the outputs'
                shapes and dtypes.
            **inputs: one array (or what numpy.asarray takes) an input. Only numpy's "safe" casts
                are made; the numbers of a list are rounded to a float dtype, as by `tensor`.

        Returns:
            A new array for a Program of one node, else a tuple. An output of a block format is a
            Tensor.

        Raises:
            GraphError: a missing or unknown input, or the Program is running in another thread.
            ShapeError, DTypeError: an input that does not match.
            RowIndexError: get_rows or set_rows met an index outside the table.
            KeyboardInterrupt: Ctrl-C stopped the run between two nodes.
        """
        if inputs.keys() != self._known:
            self._wrong_names(inputs)
        data = [_input_bytes(name, shape, kind, inputs[name]) for name, shape, kind in self._inputs]
        results = self._result_arrays(out)
        self._core.run(data, [_dense_bytes(a) for a in results])
        if out is not None:
            return out
        values = tuple(
            a if kind.numpy is not None else Tensor.from_raw(a, shape, kind)
            for a, (shape, kind) in zip(results, self._outputs, strict=True)
        )
        return values if self._many else values[0]

    def _wrong_names(self, inputs: Mapping[str, Any]) -> None:
        missing = [n for n, _, _ in self._inputs if n not in inputs]
        unknown = [n for n in inputs if n not in self._known]
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"unknown {', '.join(unknown)}"] if unknown else []
        wants = ", ".join(n for n, _, _ in self._inputs) or "none"
        raise GraphError(f"inputs: {'; '.join(parts)} (this program takes {wants})")

    def _result_arrays(self, out: Any) -> list[np.ndarray[Any, Any]]:
        if out is None:
            return [
                np.empty(shape, kind.numpy)
                if kind.numpy is not None
                else np.empty(_raw_shape(shape, kind), np.uint8)
                for shape, kind in self._outputs
            ]
        arrays = list(out) if self._many else [out]
        if len(arrays) != len(self._outputs):
            raise ParameterError(f"out: {len(self._outputs)} arrays expected, got {len(arrays)}")
        for i, (array, (shape, kind)) in enumerate(zip(arrays, self._outputs, strict=True)):
            wanted = shape if kind.numpy is not None else _raw_shape(shape, kind)
            numpy_dtype = kind.numpy if kind.numpy is not None else np.dtype(np.uint8)
            if not isinstance(array, np.ndarray) or array.dtype != numpy_dtype:
                raise DTypeError(f"out[{i}]: an array of {numpy_dtype} expected")
            if array.shape != wanted or not array.flags.c_contiguous or not array.flags.writeable:
                raise ShapeError(f"out[{i}]: a dense writable array of shape {wanted} expected")
        return arrays

    def __repr__(self) -> str:
        takes = ", ".join(f"{n} {s} {k.name}" for n, s, k in self._inputs)
        gives = ", ".join(f"{s} {k.name}" for s, k in self._outputs)
        return f"<Program ({takes}) -> {gives}; {self.n_nodes} nodes, {self.threads} threads>"


def _raw_shape(shape: tuple[int, ...], kind: DType) -> tuple[int, ...]:
    return (*shape[:-1], kind.row_bytes(shape[-1] if shape else 1))


def _dense_bytes(array: np.ndarray[Any, Any]) -> Any:
    """The array as something with the buffer protocol, which ml_dtypes arrays lack."""
    return array.reshape(-1).view(np.uint8) if array.dtype.kind == "V" else array


_LISTS = (list, tuple, bool, int, float)


def _listed(name: str, kind: DType, value: Any) -> np.ndarray[Any, Any]:
    """Python numbers, which have no dtype of their own, as an array of the input's."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise DTypeError(f"input '{name}': not an array of {kind.name}: {e}") from None
    if array.size == 0:
        return array.astype(kind.numpy)
    if array.dtype.kind not in ("iub" if kind.is_index else "fiub"):
        raise DTypeError(f"input '{name}': {array.dtype} values are not {kind.name}")
    if not kind.is_index:
        return tensor(array, dtype=kind).numpy()
    exact = array.astype(kind.numpy)
    if (exact != array).any():
        raise DTypeError(f"input '{name}': a value passes the range of {kind.name}")
    return exact


def _input_bytes(name: str, shape: tuple[int, ...], kind: DType, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.shape != shape or value.dtype is not kind:
            wrong = ShapeError if value.shape != shape else DTypeError
            raise wrong(f"input '{name}': {shape} {kind.name} expected, got {value!r}")
        return value.raw()
    if kind.numpy is None:
        raise DTypeError(f"input '{name}': {kind.name} takes a Tensor (see Tensor.from_raw)")
    array = _listed(name, kind, value) if isinstance(value, _LISTS) else np.asarray(value)
    if array.shape != shape:
        raise ShapeError(f"input '{name}': shape {shape} expected, got {array.shape}")
    if array.dtype != kind.numpy:
        if not np.can_cast(array.dtype, kind.numpy, "safe"):
            raise DTypeError(
                f"input '{name}': {array.dtype} does not convert safely to {kind.name}"
            )
        array = array.astype(kind.numpy)
    return _dense_bytes(np.ascontiguousarray(array))


def _core_op_name(number: int) -> str:
    return next(name for name, n in _OPS.items() if n == number)


def _scalar_const(graph: Graph, value: Any) -> Node:
    return graph.const(Tensor.from_raw(np.float32(value).reshape(1), (), f32))


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
        *operands: nodes, tensors, arrays, Python scalars (F32 constants), or None for an optional
            operand left out. The graph is that of the nodes among them.
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
    ids = []
    for i, value in enumerate(operands):
        if isinstance(value, Node):
            ids.append(value._id)
        elif value is None:
            ids.append(-1)
        else:
            with _operand_errors(op, min(i, len(_OPERANDS[op]) - 1)):
                scalar = isinstance(value, _SCALARS)
                ids.append((_scalar_const(graph, value) if scalar else graph.const(value))._id)
    while ids and ids[-1] == -1:
        ids.pop()
    if "dtype" in params:
        params["dtype"] = -1 if params["dtype"] is None else as_dtype(params["dtype"]).id
    return Node(graph, graph._core.op(_OPS[op], ids, params))


def _binary(op: str, a: Any, b: Any) -> Node:
    """An arithmetic operator; a Python scalar is as weak as in numpy and keeps the node's dtype."""
    if not isinstance(a, _SCALARS) and not isinstance(b, _SCALARS):
        return call_op(op, a, b)
    node, value = (b, a) if isinstance(a, _SCALARS) else (a, b)
    keep = None if node.dtype.is_block else node.dtype
    number = float(value)
    if op == "mul":
        return call_op("scale", node, s=number, bias=-0.0, dtype=keep)  # + 0 would lose -0
    if op == "add":
        return call_op("scale", node, s=1.0, bias=number, dtype=keep)
    if op == "sub" and node is a:
        return call_op("scale", node, s=1.0, bias=-number, dtype=keep)
    if op == "sub":
        return call_op("scale", node, s=-1.0, bias=number, dtype=keep)
    return call_op(op, a, b, dtype=keep)
