"""Calls: operands of any kind become nodes, and `call_op` adds the node of an op to their graph."""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.checks import shown
from pyggml.dtypes import DType, f32, f64
from pyggml.dtypes import dtype as as_dtype
from pyggml.errors import DTypeError, GraphError, ParameterError, PyggmlError, ReadOnlyError
from pyggml.node import Node
from pyggml.rows import OPS, OpRow
from pyggml.tensor import _SCALARS, Tensor, _from_numbers, as_array, tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyggml.dtypes import DTypeLike
    from pyggml.graph import Graph

    Prepared = Node | tuple[Tensor, bool]  # a node, or a constant and whether it is a copy

_F32_MAX = float(np.finfo(np.float32).max)
_COPY_HINT = " (it was given as numbers or an array that must be copied: write into a Tensor)"


def _is_list(value: Any, depth: int = _core.MAX_DIMS) -> bool:
    """A list of numbers, or of such lists."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(v, _SCALARS) or (depth > 1 and _is_list(v, depth - 1)) for v in value
    )


def _is_weak(value: Any) -> bool:
    """A Python number or a list of them: it has no dtype of its own."""
    return isinstance(value, _SCALARS) or _is_list(value)


def prepared(op: str, name: str, value: Any, kind: DType | None = f32) -> Prepared:
    """An operand as `placed` takes it; errors name it.

    It may run code of the caller's (`__array__`), so no lock is held meanwhile.

    Args:
        op: for messages.
        name: of the operand.
        value: of any kind.
        kind: what Python numbers and lists of them become; None: what numpy makes of them.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, Tensor):
        return value, False
    with operand_errors(op, name):
        if kind is not None and isinstance(value, _SCALARS):
            with np.errstate(over="ignore"):
                number = np.float32(_as_float(value))
            return Tensor.from_raw(number.reshape(1), (), f32), True
        if kind is not None and _is_list(value):
            return tensor(_from_numbers(value, kind)), True
        return captured(value)


def captured(value: Any, name: str | None = None) -> tuple[Tensor, bool]:
    """What `pyggml.tensor` makes of it, and whether that has other memory than the value."""
    t = tensor(value, name=name)
    if isinstance(value, (list, tuple)):
        return t, True
    # What shares its memory gives the same memory again.
    return t, t.nbytes > 0 and not np.may_share_memory(np.asarray(value), t.raw())


def placed(graph: Graph, value: Prepared) -> Node:
    """The node of a prepared operand in the graph."""
    return value if isinstance(value, Node) else graph._capture(*value)


def _list_kind(row: OpRow, operands: tuple[Any, ...]) -> DType:
    """What the numbers of a list become: f32, or what the other operands only store."""
    for name, value in zip(row.operands, operands, strict=False):
        if name not in row.index and isinstance(value, (Node, Tensor)) and not value.dtype.is_float:
            return value.dtype
    return f32


@contextmanager
def operand_errors(op: str, name: str) -> Iterator[None]:
    """Errors about one operand name it and its op."""
    try:
        yield
    except PyggmlError as e:
        message = str(e).removeprefix("tensor: ")
        raise type(e)(f"{op}: operand {name}: {message}") from None


def shape_of(op: str, name: str, value: Any) -> tuple[int, ...]:
    """The shape that an operand will have as a node."""
    if isinstance(value, (Node, Tensor)):
        return value.shape
    with operand_errors(op, name):
        return tuple(as_array("", value).shape)


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
    if op not in OPS:
        raise ParameterError(f"there is no op {shown(op)}; there are {', '.join(OPS)}")
    row, graph = OPS[op], _graph_of(op, operands)
    ready = [_operand(op, i, operands) for i in range(len(operands))]
    while ready and ready[-1] is None:
        ready.pop()
    if "dtype" in params:
        params["dtype"] = _result_dtype(op, params["dtype"])
    with _core.AllOrNone(graph):
        ids = [-1 if value is None else placed(graph, value).id for value in ready]
        try:
            return Node(graph, graph._core.op(row.number, ids, params))
        except (DTypeError, ReadOnlyError) as e:
            raise type(e)(f"{e}{_hint(graph, row, e, ids)}") from None


def _graph_of(op: str, operands: tuple[Any, ...]) -> Graph:
    """The graph of the nodes among the operands."""
    graph: Graph | None = None
    for value in operands:
        if isinstance(value, Node):
            if graph is not None and value.graph is not graph:
                raise GraphError(f"{op}: the operands belong to two graphs")
            graph = value.graph
    if graph is None:
        raise GraphError(f"{op}: no operand belongs to a graph; make one with g.input or g.const")
    return graph


def _operand(op: str, i: int, operands: tuple[Any, ...]) -> Prepared | None:
    """Operand i, None for one that is left out."""
    row = OPS[op]
    name = row.operands[min(i, len(row.operands) - 1)]
    if operands[i] is None:
        if i < len(row.operands) and name not in row.optional:
            raise GraphError(f"{op}: the operand {name} is missing (None was given)")
        return None
    kind = None if name in row.index else _list_kind(row, operands)
    return prepared(op, name, operands[i], kind)


def _result_dtype(op: str, dtype: DTypeLike | None) -> int:
    """The parameter `dtype` of an op: a number, -1 for None."""
    if dtype is None:
        return -1
    try:
        return as_dtype(dtype).id
    except DTypeError as e:
        raise DTypeError(f"{op}: dtype: {e}") from None


def _hint(graph: Graph, row: OpRow, e: PyggmlError, ids: list[int]) -> str:
    """What the caller may not know about a constant among the operands that were refused."""
    if isinstance(e, ReadOnlyError):
        written = graph._core.node(ids[row.operands.index("dst")]).root
        return _COPY_HINT if written in graph._copies else ""
    if row.write and graph._core.node(ids[row.operands.index("dst")]).dtype == f64.id:
        return ' (pg.zeros(shape, "f32") makes what can be written into)'
    roots = [graph._core.node(graph._core.node(i).root) for i in ids if i >= 0]
    wide = any(root.dtype == f64.id and root.op == _core.NODE_CONST for root in roots)
    return " (a float64 array: .astype(np.float32) rounds it)" if wide else ""


def _is_operand(value: Any) -> bool:
    """Whether an arithmetic operator takes it; the others may be asked by Python what they say."""
    if _is_weak(value) or isinstance(value, (Node, Tensor, np.ndarray)):
        return True
    if isinstance(value, (str, bytes, bytearray)):
        return False
    return isinstance(value, (list, tuple, memoryview, array)) or hasattr(value, "__array__")


def binary(op: str, a: Any, b: Any) -> Any:
    """An arithmetic operator; Python numbers are weak as in numpy and keep the node's dtype."""
    if not _is_operand(a) or not _is_operand(b):
        return NotImplemented
    if op == "matmul":
        from pyggml import ops

        return ops.matmul(a, b)
    if not _is_weak(a) and not _is_weak(b):
        return call_op(op, a, b)
    node, value = (b, a) if _is_weak(a) else (a, b)
    keep = None if node.dtype.is_block else node.dtype
    if not isinstance(value, _SCALARS):
        return call_op(op, a, b, dtype=keep)
    try:
        number = _as_float(value)
    except ParameterError as e:
        raise ParameterError(f"{op}: {e}") from None
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


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ParameterError("an integer that no float holds is no operand") from None


def power_of(x: Node, power: Any) -> Node:
    """The powers that x ** power takes; what has two steps rounds to x's dtype in the last."""
    if not isinstance(power, _SCALARS) or power not in _POWERS:
        known = ", ".join(str(p) for p in _POWERS)
        raise ParameterError(f"the powers of a node are {known}, got {shown(power)}")
    keep = None if x.dtype.is_block else x.dtype
    with _core.AllOrNone(x.graph):
        return _POWERS[float(power)](x, keep)


def _square(x: Node) -> Node:
    return call_op("sqr", x, dtype=f32)


def _inverse(x: Node, keep: DType | None) -> Node:
    return call_op("div", 1.0, x, dtype=keep)


_POWERS: dict[float, Callable[[Node, DType | None], Node]] = {
    1: lambda x, _: x,
    2: lambda x, _: call_op("sqr", x),
    3: lambda x, keep: call_op("mul", _square(x), x, dtype=keep),
    4: lambda x, keep: call_op("sqr", _square(x), dtype=keep),
    0.5: lambda x, _: call_op("sqrt", x),
    -0.5: lambda x, keep: _inverse(call_op("sqrt", x, dtype=f32), keep),
    -1: _inverse,
    -2: lambda x, keep: _inverse(_square(x), keep),
}
