"""The KV cache: cells that hold one position each, for one or several sequences.

A cell has a position and the set of sequences it belongs to. The keys and values of a step are
written by `set_rows` through an index input, so a graph does not depend on which cells are free.
Cells are committed only after the step succeeded: a step that fails or is interrupted leaves the
cache as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.dtypes import DType
from pyggml.dtypes import dtype as as_dtype
from pyggml.errors import (
    ContextError,
    DTypeError,
    OutOfMemoryError,
    ParameterError,
    ShapeError,
)
from pyggml.tensor import Tensor, zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyggml.dtypes import DTypeLike

CELL_BLOCK = 256  # attention sees the cells rounded up to this, so that few graphs serve all depths
CACHE_DTYPES = ("f32", "f16", "bf16", "f8_e4m3", "q8_0")
_FREE = -1


def cache_dtype(value: DTypeLike, what: str) -> DType:
    """A dtype that a cache side can have.

    Raises:
        DTypeError: another one; lists those that can.
    """
    try:
        kind = as_dtype(value)
    except DTypeError:
        kind = None
    if kind is None or kind.name not in CACHE_DTYPES:
        raise DTypeError(
            f"{what}: {value!r} is not a cache dtype; there are {', '.join(CACHE_DTYPES)}"
        )
    return kind


@dataclass(frozen=True)
class LayerCache:
    """The two tensors of one layer.

    Attributes:
        k: (C, G*D) keys, after RoPE, divided by k_scale where it has one.
        v: (C, G*D) values, divided by v_scale where it has one.
        k_scale: the scale of k, or None.
        v_scale: the scale of v, or None.
    """

    k: Tensor
    v: Tensor
    k_scale: float | None = None
    v_scale: float | None = None


class KVCache:
    """Cells of all layers.

    Args:
        n_cells: positions it can hold, all sequences together.
        n_layers: layers.
        n_kv_heads: G.
        head_dim: D.
        type_k: dtype of the keys: f32, f16, bf16, f8_e4m3 or q8_0.
        type_v: dtype of the values.
        scales: layer -> (k, v); used on the sides whose dtype takes a static scale.

    Raises:
        DTypeError: a dtype that is no cache dtype.
        ShapeError: a head size that the block format cannot hold.
        OutOfMemoryError: more than the machine has left.
    """

    def __init__(
        self,
        n_cells: int,
        n_layers: int,
        n_kv_heads: int,
        head_dim: int,
        type_k: DTypeLike = "f16",
        type_v: DTypeLike = "f16",
        scales: dict[int, tuple[float | None, float | None]] | None = None,
    ) -> None:
        if n_cells < 1:
            raise ParameterError(f"n_cells must be at least 1, got {n_cells}")
        self.n_cells = n_cells
        self.type_k = cache_dtype(type_k, "type_k")
        self.type_v = cache_dtype(type_v, "type_v")
        width = n_kv_heads * head_dim
        for name, kind in (("type_k", self.type_k), ("type_v", self.type_v)):
            if head_dim % kind.block:
                raise ShapeError(
                    f"{name}: a head of {head_dim} is not whole blocks of {kind.block} {kind.name}"
                )
        total = n_layers * n_cells * (self.type_k.row_bytes(width) + self.type_v.row_bytes(width))
        room = _core.memory_room()
        if total > room:  # all layers at once: zeros are not touched yet when the next is asked for
            raise OutOfMemoryError(
                f"a cache of {n_cells} cells takes {total} bytes, {room} are available"
            )
        self.layers = tuple(
            LayerCache(
                zeros((n_cells, width), self.type_k, f"cache.{i}.k"),
                zeros((n_cells, width), self.type_v, f"cache.{i}.v"),
                (scales or {}).get(i, (None, None))[0] if self.type_k.is_scaled else None,
                (scales or {}).get(i, (None, None))[1] if self.type_v.is_scaled else None,
            )
            for i in range(n_layers)
        )
        self.pos: NDArray[np.int32] = np.full(n_cells, _FREE, np.int32)
        self._members: dict[int, NDArray[np.bool_]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(x.k.nbytes + x.v.nbytes for x in self.layers)

    @property
    def n_used(self) -> int:
        """Cells in use."""
        return int(np.count_nonzero(self.pos != _FREE))

    @property
    def sequences(self) -> tuple[int, ...]:
        """Ids of the sequences that have cells."""
        return tuple(sorted(s for s, m in self._members.items() if m.any()))

    def length(self, seq: int = 0) -> int:
        """One more than the last position of a sequence, 0 when it is empty."""
        member = self._members.get(seq)
        return 0 if member is None or not member.any() else int(self.pos[member].max()) + 1

    def find_cells(self, n: int) -> NDArray[np.int64]:
        """The first n free cells. They stay free until `commit`.

        Raises:
            ContextError: fewer than n are free.
        """
        free = np.flatnonzero(self.pos == _FREE)
        if free.size < n:
            raise ContextError(f"{n} cells needed, {free.size} of {self.n_cells} are free")
        return free[:n].astype(np.int64)

    def commit(self, cells: NDArray[np.int64], positions: NDArray[np.int32], seq: int = 0) -> None:
        """Makes the cells that a step has written part of a sequence."""
        member = self._member(seq)
        member[cells] = True
        self.pos[cells] = positions

    def _member(self, seq: int) -> NDArray[np.bool_]:
        if isinstance(seq, bool) or not isinstance(seq, int | np.integer) or seq < 0:
            raise ParameterError(f"a sequence id is an integer >= 0, got {seq!r}")
        return self._members.setdefault(int(seq), np.zeros(self.n_cells, np.bool_))

    def share(self, source: int, target: int) -> None:
        """Lets the sequence `target` see all cells of `source` too."""
        self._member(target)[self._member(source)] = True

    def remove(self, seq: int, start: int = 0, stop: int | None = None) -> int:
        """Takes positions start <= p < stop of a sequence out; cells of no sequence become free.

        Returns:
            How many cells the sequence lost. An empty range is fine and loses none.

        Raises:
            ParameterError: a negative id or start.
        """
        member = self._member(seq)
        if start < 0 or (stop is not None and stop < 0):
            raise ParameterError(f"remove: the range [{start}, {stop}) has a negative end")
        gone = member & (self.pos >= start)
        if stop is not None:
            gone &= self.pos < stop
        member[gone] = False
        held = np.zeros(self.n_cells, np.bool_)
        for other in self._members.values():
            held |= other
        self.pos[~held] = _FREE
        return int(np.count_nonzero(gone))

    def clear(self) -> None:
        """Frees every cell. The bytes stay; masked cells never contribute, whatever they hold."""
        self.pos[:] = _FREE
        self._members.clear()

    def n_visible(self, cells: NDArray[np.int64]) -> int:
        """How many leading cells attention must see: up to the last used or new one, rounded up."""
        used = np.flatnonzero(self.pos != _FREE)
        top = max(int(used[-1]) if used.size else -1, int(cells.max()) if cells.size else -1) + 1
        return min(self.n_cells, -(-max(top, 1) // CELL_BLOCK) * CELL_BLOCK)

    def mask(
        self,
        cells: NDArray[np.int64],
        positions: NDArray[np.int32],
        seq: int,
        n_visible: int,
    ) -> NDArray[np.float32]:
        """The additive mask (T, n_visible) of a step: 0 where token t sees the cell, else -inf.

        A token sees the cells of its sequence at its own or earlier positions, the step's own
        included.
        """
        pos = self.pos[:n_visible].copy()
        member = self._member(seq)[:n_visible].copy()
        pos[cells] = positions
        member[cells] = True
        seen = member & (pos <= positions[:, None])
        return np.where(seen, np.float32(0), np.float32(-np.inf))

    def count_clipped(self) -> dict[str, int]:
        """Counts codes of +-448 in the used cells of an F8_E4M3 side: saturated values.

        A value that was exactly +-448 counts too. Other dtypes give 0.
        """
        used = self.pos != _FREE
        return {
            "k": sum(_clipped(x.k, used) for x in self.layers),
            "v": sum(_clipped(x.v, used) for x in self.layers),
        }


def _clipped(t: Tensor, used: NDArray[np.bool_]) -> int:
    if not t.dtype.is_scaled:
        return 0
    codes: NDArray[Any] = t.raw().reshape(t.shape)[used]
    return int(np.count_nonzero((codes & 0x7F) == 0x7E))
