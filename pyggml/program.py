"""Program: a compiled graph, its inputs bound and its outputs given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from pyggml import _core
from pyggml.checks import as_int, first_of, shown
from pyggml.errors import DTypeError, GraphError, ParameterError, ShapeError
from pyggml.node import Node
from pyggml.tensor import _SCALARS, Tensor, _byte_size, _from_numbers, as_array, room_for

if TYPE_CHECKING:
    from pyggml.dtypes import DType
    from pyggml.graph import Graph
    from pyggml.profile import MemoryPlan, Profile

_MAX_RUNS = 1_000_000


class Program:
    """A compiled graph: `prog(x=...)` runs it, without the GIL, allocating nothing in C."""

    def __init__(
        self,
        graph: Graph,
        outputs: tuple[Node, ...],
        threads: int,
        arena: _core.Arena | None,
        flags: int,
        many: bool,
    ) -> None:
        self._core = _core.Program(graph._core, [n.id for n in outputs], threads, arena, flags)
        inputs = [Node(graph, i) for i in self._core.inputs]
        self._inputs = [(n.name, n.shape, n.dtype) for n in inputs]
        self._outputs = [(n.shape, n.dtype) for n in outputs]
        self._known = {name for name, _, _ in self._inputs}
        self._defaults = {k: v for k, v in graph._defaults.items() if k in self._known}
        self._many = many
        self._shown = _constants_of(graph, outputs)

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], DType]]:
        """Name -> (shape, dtype) of each input that the outputs need."""
        return {name: (shape, kind) for name, shape, kind in self._inputs}

    @property
    def defaults(self) -> tuple[str, ...]:
        """Names of the inputs that a run may leave out."""
        return tuple(self._defaults)

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

    def __call__(self, /, *unnamed: Never, out: Any = None, **inputs: Any) -> Any:
        """Runs once.

        Shapes: each input's and output's own, as built.
        Dtypes: each input's and output's own; see `inputs`.

        Args:
            *unnamed: nothing: inputs go by name.
            out: array, or sequence of arrays, to fill instead of new ones: dense, of the outputs'
                shapes and dtypes, in memory that neither another of them nor a constant that is
                returned uses.
            **inputs: one array (or what numpy.asarray takes) an input; those with a default may
                be left out. Only numpy's "safe" casts are made; the numbers of a list are rounded
                to a float dtype, as by `tensor`.

        Returns:
            A new array for a Program of one node, else a tuple. An output of a block format is a
            Tensor.

        Raises:
            GraphError: a missing, unknown or unnamed input, or the Program is running in another
                thread.
            ParameterError: arrays of `out` that are too many or too few, or that overlap.
            ShapeError, DTypeError: an input that does not match.
            RowIndexError: get_rows or set_rows met an index outside the table.
            OutOfMemoryError: no room for the results.
            InternalError: of a guarded program, a node wrote beside its memory.
            KeyboardInterrupt: Ctrl-C stopped the run between two nodes.
        Source: csrc/graph/exec.c.
        """
        if unnamed:
            raise GraphError(f"inputs go by name: {self!r}")
        data = self._input_data(inputs)
        results = self._result_arrays(out)
        self._core.run(data, [_dense_bytes(a) for a in results])
        if out is not None:
            return out
        values = tuple(
            a if kind.numpy is not None else Tensor.from_raw(a, shape, kind)
            for a, (shape, kind) in zip(results, self._outputs, strict=True)
        )
        return values if self._many else values[0]

    def profile(
        self,
        feeds: Mapping[str, Any] | None = None,
        /,
        *,
        runs: int = 10,
        peak: bool = True,
        **inputs: Any,
    ) -> Profile:
        """Times each node: one run to warm up, then `runs` that count.

        Writes into tensors happen as in any run. The clock is read once before and once after each
        node; otherwise the program runs as always.

        Shapes: inputs as for a call.        Dtypes: inputs as for a call.

        Args:
            feeds: inputs by name, for names that collide with the arguments here.
            runs: 1 to 1,000,000.
            peak: also measure, once a process and thread count, what the machine reaches (about
                100 ms and 128 MiB): see `Peak`.
            **inputs: as for a call.

        Raises:
            ParameterError: runs out of range, feeds that are not by name.
            OutOfMemoryError: no room for what `peak` needs.
            GraphError, ShapeError, DTypeError, RowIndexError: as for a call.
        Source: csrc/graph/report.c, csrc/graph/probe.c.
        """
        from pyggml.profile import Profile, measured_peak

        if feeds is not None and not isinstance(feeds, Mapping):
            raise ParameterError(f"profile: feeds are inputs by name, got {shown(feeds)}")
        runs = as_int("profile: runs", runs)
        if not 1 <= runs <= _MAX_RUNS:
            raise ParameterError(f"profile: runs must be in [1, {_MAX_RUNS}], got {shown(runs)}")
        data = self._input_data({**(feeds or {}), **inputs})
        results = self._result_arrays(None)
        top = measured_peak(self.threads) if peak else None
        records = self._core.profile(data, [_dense_bytes(a) for a in results], runs)
        return Profile(records, self.threads, top)

    def memory_plan(self) -> MemoryPlan:
        """Where the memory of each node lies and how long it is kept, as data."""
        from pyggml.profile import MemoryPlan

        return MemoryPlan(self._core.nodes(), self._core.memory(), self.threads)

    def _input_data(self, inputs: Mapping[str, Any]) -> list[Any]:
        if inputs.keys() != self._known:
            self._check_names(inputs)
        return [
            _input_bytes(name, shape, kind, inputs[name])
            if name in inputs
            else self._defaults[name]
            for name, shape, kind in self._inputs
        ]

    def _check_names(self, inputs: Mapping[str, Any]) -> None:
        missing = [n for n, _, _ in self._inputs if n not in inputs and n not in self._defaults]
        unknown = [n for n in inputs if n not in self._known]
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"unknown {', '.join(unknown)}"] if unknown else []
        if not parts:
            return
        wants = ", ".join(n + "?" * (n in self._defaults) for n, _, _ in self._inputs) or "none"
        raise GraphError(f"inputs: {'; '.join(parts)} (this program takes {wants})")

    def _result_arrays(self, out: Any) -> list[np.ndarray[Any, Any]]:
        if out is None:
            size = sum(_byte_size(shape, kind) for shape, kind in self._outputs)
            with room_for("the results", size):
                return [
                    np.empty(shape, kind.numpy)
                    if kind.numpy is not None
                    else np.empty(_raw_shape(shape, kind), np.uint8)
                    for shape, kind in self._outputs
                ]
        n = len(self._outputs)
        arrays = first_of(out, n) if self._many else [out]
        if arrays is None:
            raise ParameterError(f"out: a sequence of {n} arrays expected, got {shown(out)}")
        if len(arrays) != n:
            raise ParameterError(f"out: {n} arrays expected, got {len(arrays)}")
        for i, (array, (shape, kind)) in enumerate(zip(arrays, self._outputs, strict=True)):
            wanted = shape if kind.numpy is not None else _raw_shape(shape, kind)
            numpy_dtype = kind.numpy if kind.numpy is not None else np.dtype(np.uint8)
            if not isinstance(array, np.ndarray) or array.dtype != numpy_dtype:
                raise DTypeError(f"out[{i}]: an array of {numpy_dtype} expected")
            if array.shape != wanted or not array.flags.c_contiguous or not array.flags.writeable:
                raise ShapeError(f"out[{i}]: a dense writable array of shape {wanted} expected")
        self._check_apart(arrays)
        return arrays

    def _check_apart(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        """Results are written in turn: none may go where another goes or comes from."""
        places = [(*span(a), f"out[{i}]") for i, a in enumerate(arrays)]
        places += [(*span(t.raw()), "a constant that is returned") for t in self._shown]
        places = sorted(place for place in places if place[0] < place[1])
        end, last = 0, ""
        for start, stop, name in places:
            if start < end and (name.startswith("out") or last.startswith("out")):
                raise ParameterError(f"{last} and {name} overlap in memory")
            if stop > end:
                end, last = stop, name

    def __reduce__(self) -> Never:
        raise TypeError("a Program refers to memory of this process: it is not pickled or copied")

    def __repr__(self) -> str:
        takes = ", ".join(f"{n} {s} {k.name}" for n, s, k in self._inputs)
        gives = ", ".join(f"{s} {k.name}" for s, k in self._outputs)
        return f"<Program ({takes}) -> {gives}; {self.n_nodes} nodes, {self.threads} threads>"


def _constants_of(graph: Graph, outputs: tuple[Node, ...]) -> list[Tensor]:
    """The Tensors of the graph in whose memory outputs lie."""
    roots = {graph._core.node(n.id).root for n in outputs}
    return [t for t, node in graph._consts.values() if node.id in roots]


def span(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Address of a dense array's first byte, and one past its last."""
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


def _raw_shape(shape: tuple[int, ...], kind: DType) -> tuple[int, ...]:
    return (*shape[:-1], kind.row_bytes(shape[-1] if shape else 1))


def _dense_bytes(array: np.ndarray[Any, Any]) -> Any:
    """The array as something with the buffer protocol, which ml_dtypes arrays lack."""
    return array.reshape(-1).view(np.uint8) if array.dtype.kind == "V" else array


_LISTS = (list, tuple, *_SCALARS)


def _listed(name: str, kind: DType, value: Any) -> np.ndarray[Any, Any]:
    """Python numbers, which have no dtype of their own, as an array of the input's."""
    try:
        return _from_numbers(value, kind)
    except DTypeError as e:
        raise DTypeError(f"input '{name}': {e}") from None


def _fed_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, Node):
        raise DTypeError(f"input '{name}': a node is no array of numbers")
    array = as_array(f"input '{name}': ", value)
    if array.dtype.kind in "OUSMm" and not isinstance(value, np.ndarray):
        raise DTypeError(f"input '{name}': {type(value).__name__} is no array of numbers")
    return array


def _default_bytes(name: str, shape: tuple[int, ...], kind: DType, value: Any) -> Any:
    """What an input's default holds, copied, as dense bytes."""
    with room_for(f"the default of input '{name}'", _byte_size(shape, kind)):
        return _default_copy(name, shape, kind, value)


def _default_copy(name: str, shape: tuple[int, ...], kind: DType, value: Any) -> Any:
    if not isinstance(value, Tensor) and kind.numpy is not None:
        value = _listed(name, kind, value) if isinstance(value, _LISTS) else _fed_array(name, value)
        try:
            value = np.broadcast_to(value, shape)
        except ValueError:
            raise ShapeError(
                f"input '{name}': a default of shape {value.shape} does not broadcast to {shape}"
            ) from None
    data = _input_bytes(name, shape, kind, value)
    given = value.raw() if isinstance(value, Tensor) else value
    return data.copy() if np.may_share_memory(data, given) else data


def _input_bytes(name: str, shape: tuple[int, ...], kind: DType, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.shape != shape or value.dtype is not kind:
            wrong = ShapeError if value.shape != shape else DTypeError
            raise wrong(f"input '{name}': {shape} {kind.name} expected, got {value!r}")
        return value.raw()
    if kind.numpy is None:
        raise DTypeError(f"input '{name}': {kind.name} takes a Tensor (see Tensor.from_raw)")
    array = _listed(name, kind, value) if isinstance(value, _LISTS) else _fed_array(name, value)
    if array.shape != shape:
        raise ShapeError(f"input '{name}': shape {shape} expected, got {array.shape}")
    if array.dtype != kind.numpy:
        if not np.can_cast(array.dtype, kind.numpy, "safe"):
            raise DTypeError(
                f"input '{name}': {array.dtype} does not convert safely to {kind.name}; "
                f".astype({kind.numpy}) rounds it"
            )
        array = array.astype(kind.numpy)
    return _dense_bytes(np.ascontiguousarray(array))
