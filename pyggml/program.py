"""Program: a compiled graph, its inputs bound and its outputs given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

import numpy as np

from pyggml import _core
from pyggml.errors import DTypeError, GraphError, ParameterError, ShapeError
from pyggml.node import Node
from pyggml.tensor import Tensor, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyggml.dtypes import DType
    from pyggml.graph import Graph


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

    def __call__(self, /, *unnamed: Never, out: Any = None, **inputs: Any) -> Any:
        """Runs once.

        Args:
            *unnamed: nothing: inputs go by name.
            out: array, or sequence of arrays, to fill instead of new ones: dense, of the outputs'
                shapes and dtypes.
            **inputs: one array (or what numpy.asarray takes) an input. Only numpy's "safe" casts
                are made; the numbers of a list are rounded to a float dtype, as by `tensor`.

        Returns:
            A new array for a Program of one node, else a tuple. An output of a block format is a
            Tensor.

        Raises:
            GraphError: a missing, unknown or unnamed input, or the Program is running in another
                thread.
            ShapeError, DTypeError: an input that does not match.
            RowIndexError: get_rows or set_rows met an index outside the table.
            KeyboardInterrupt: Ctrl-C stopped the run between two nodes.
        """
        if unnamed:
            raise GraphError(f"inputs go by name: {self!r}")
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
