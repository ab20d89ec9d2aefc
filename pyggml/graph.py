"""Graph: inputs, constants and nodes, built by Python and compiled into a Program."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any, Never

from pyggml import _core
from pyggml.call import call_op, captured
from pyggml.checks import as_bool, as_int, as_name, first_of, shown
from pyggml.dtypes import dtype as as_dtype
from pyggml.dtypes import f32
from pyggml.errors import GraphError, ParameterError, ShapeError
from pyggml.node import Node
from pyggml.program import Program, _default_bytes
from pyggml.tensor import Tensor, _node_shape

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyggml.dtypes import DTypeLike

__all__ = ["Graph", "Node", "Program", "call_op"]


class Graph:
    """A graph under construction; a wrong shape, dtype or parameter raises where it is built."""

    def __init__(self) -> None:
        if hasattr(self, "_core"):
            raise GraphError("a Graph is not initialised again: its nodes would be others")
        self._core = _core.Graph()
        self._lock = RLock()  # for what Python adds to the core: see docs/threads.md
        self._consts: dict[int, tuple[Tensor, Node]] = {}
        self._copies: set[int] = set()  # constants that are copies of what was given
        self._defaults: dict[str, Any] = {}  # dense bytes of an input that a run may leave out

    def input(
        self,
        name: str,
        shape: int | Sequence[int],
        dtype: DTypeLike = f32,
        default: Any = None,
    ) -> Node:
        """A slot that each run fills by copy.

        Shapes: any of at most 4 axes, whole blocks along the last.        Dtypes: any.

        Args:
            name: keyword under which the Program takes it; unique in the graph.
            shape: numpy order, fixed; an int is one axis.
            dtype: of the elements.
            default: what a run that does not give the input takes: a number or array that
                broadcasts to the shape, converted as an input is, or a Tensor of shape and dtype.
                It is copied here.

        Raises:
            GraphError: the name is taken.
            ParameterError: an empty or overlong name, or "out", which a Program's call has already.
            ShapeError: a negative axis, more than 4 axes, a last axis that is not whole blocks, or
                a default that does not broadcast.
            DTypeError: a default that does not convert to the dtype.
            OutOfMemoryError: the default does not fit the machine.
        Source: csrc/graph/graph.c.
        """
        name = as_name("input", name)
        if name == "out":
            raise ParameterError("input: 'out' names the arrays that a Program fills")
        kind, dims = as_dtype(dtype), _node_shape(f"input '{name}': shape", shape)
        if min(dims, default=0) < 0:
            raise ShapeError(f"input '{name}': shape {shown(dims)}: negative axis")
        data = None if default is None else _default_bytes(name, dims, kind, default)
        with self._lock:
            node = Node(self, self._core.input(name, kind.id, dims))
            self._defaults.pop(name, None)  # of an input that was undone
            if data is not None:
                self._defaults[name] = data
        return node

    def const(self, value: Any, name: str | None = None) -> Node:
        """A Tensor or array as a node, by reference; the same Tensor gives the same node.

        An array that `pyggml.tensor` must copy (not dense, not native-endian, unaligned, a list) is
        captured as it is now, and is read-only: nobody would see what is written into the copy.

        Shapes: any of at most 4 axes, kept.        Dtypes: any, kept.

        Args:
            value: a Tensor, or what `pyggml.tensor` takes.
            name: shown in messages; without it the tensor's own.

        Raises:
            DTypeError: an array whose dtype is none of pyggml's.
            ParameterError: a name that is no string, or of more than 63 bytes (that of the
                tensor itself is cut).
            OutOfMemoryError: a copy is needed, and the machine has no room for it.
        Source: csrc/graph/graph.c.
        """
        if name is not None:
            name = as_name("const", name, _core.MAX_NAME)
        if isinstance(value, Tensor):
            return self._capture(value, False, name)
        t, copied = captured(value, name)
        return self._capture(t, copied, name)

    def _capture(self, t: Tensor, copied: bool, name: str | None = None) -> Node:
        with self._lock:  # two threads give one tensor one node
            known = self._consts.get(id(t))
            if known is not None:
                return known[1]
            label = name or t.name or ""
            writable = t.writable and not copied
            number = self._core.const(t.raw(), t.dtype.id, t.shape, label, writable)
            node = Node(self, number)
            self._consts[id(t)] = (t, node)
            if copied:
                self._copies.add(number)
        return node

    def _forget(self, n: int) -> None:
        """Takes back the nodes from number n on; the caller holds the lock."""
        self._core.truncate(n)
        while self._consts and next(reversed(self._consts.values()))[1].id >= n:
            self._consts.popitem()
        self._copies.difference_update([i for i in self._copies if i >= n])

    def compile(
        self,
        outputs: Node | Sequence[Node],
        threads: int | None = None,
        *,
        arena: _core.Arena | None = None,
        planned: bool = True,
        guarded: bool = False,
    ) -> Program:
        """A Program that computes the outputs, with all of its memory planned and allocated.

        Besides the outputs it runs every write into a Tensor (`cpy`, `set_rows`) that the graph
        holds.

        Shapes: the outputs' own.        Dtypes: the outputs' own.

        Args:
            outputs: a node (the Program returns an array) or a sequence of nodes (it returns a
                tuple).
            threads: threads to use; None takes the physical cores available to the process,
                floored by the cgroup's CPU quota.
            arena: memory shared with other Programs that never run at the same time.
            planned: False gives every node memory of its own (for debugging).
            guarded: for writers of ops: keeps guard bytes around every piece of memory, fills what
                a node is about to write with NaN, and raises InternalError from the call when a
                node has written beside its own.

        Raises:
            GraphError: a node of another graph.
            ParameterError: threads outside 1..256, an arena or a flag of another type.
            OutOfMemoryError: the arena does not fit the machine.
        Source: csrc/graph/compile.c; Pisarchyk & Lee 2020 (greedy by size) for the memory plan.
        """
        many = not isinstance(outputs, Node)
        nodes: list[Any] | None = first_of(outputs, _core.MAX_OUTPUTS) if many else [outputs]
        if nodes is None:
            raise GraphError(f"compile: {shown(outputs)} is not a node of this graph")
        for node in nodes:
            if not isinstance(node, Node) or node.graph is not self:
                raise GraphError(f"compile: {shown(node)} is not a node of this graph")
        if arena is not None and not isinstance(arena, _core.Arena):
            raise ParameterError(f"compile: arena: a pyggml.Arena expected, got {shown(arena)}")
        count = 0 if threads is None else as_int("compile: threads", threads)
        if threads is not None and not 1 <= count <= _core.MAX_THREADS:
            raise ParameterError(
                f"compile: threads must be in [1, {_core.MAX_THREADS}], got {shown(count)}"
            )
        flags = 0 if as_bool("compile: planned", planned) else _core.UNPLANNED
        flags |= _core.GUARDED if as_bool("compile: guarded", guarded) else 0
        with self._lock:  # what is compiled is the graph of one moment
            return Program(self, tuple(nodes), count, arena, flags, many)

    def __len__(self) -> int:
        return len(self._core)

    def nodes(self) -> list[Node]:
        """All nodes in build order."""
        with self._lock:
            return [Node(self, i) for i in range(len(self))]

    def to_dot(self) -> str:
        """The graph in Graphviz's language: inputs, constants, ops, outlined writes.

        A dashed edge runs from a write to each node that reads the written memory otherwise than
        through it.
        """
        from pyggml.drawing import to_dot

        return to_dot(self)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draws the graph into a file: SVG, or what the ending names (png, pdf ...).

        Needs the Python package `graphviz` (`pip install "pyggml[plot]"`) and Graphviz itself,
        whose program `dot` it starts.

        Args:
            path: of the file, which is overwritten.

        Raises:
            ImportError: the package is not installed.
            FileNotFoundError: the program `dot` is not, or the path's folder is missing.
            ParameterError: an ending that `dot` does not know, a graph that it fails on, or what is
                no path.
        """
        from pyggml.drawing import draw

        draw(self, path)

    def __reduce__(self) -> Never:
        raise TypeError("a Graph refers to memory of this process: it is not pickled or copied")

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} nodes>"
