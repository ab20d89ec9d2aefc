"""Cells: positions, sequences, masks, removal, and what a cache can be made of."""

import numpy as np
import pytest

import pyggml
from llm.running import CACHE_DTYPES
from pyggml.errors import ContextError, DTypeError, ParameterError, ShapeError
from pyggml.llm.kv_cache import CELL_BLOCK, KVCache


def make(n=16, **options):
    return KVCache(n, 2, 2, 32, **options)


def put(cache, n, seq=0):
    """Appends n positions to a sequence; returns the cells."""
    cells = cache.find_cells(n)
    start = cache.length(seq)
    cache.commit(cells, np.arange(start, start + n, dtype=np.int32), seq)
    return cells.tolist()


def seen(cache, cells, positions, seq=0, n_visible=16):
    """The cells that each token of a step sees."""
    mask = cache.mask(np.array(cells), np.array(positions, np.int32), seq, n_visible)
    assert mask.dtype == np.float32
    assert set(np.unique(mask)) <= {0.0, -np.inf}
    return [np.flatnonzero(row == 0).tolist() for row in mask]


@pytest.mark.parametrize("kind", CACHE_DTYPES)
def test_dtypes_and_bytes(kind):
    for value in (kind, kind.upper(), pyggml.dtype(kind)):
        cache = make(type_k=value, type_v="f32")
        assert cache.type_k is pyggml.dtype(kind)
        assert all(x.k.dtype is pyggml.dtype(kind) for x in cache.layers)
        assert all(x.v.dtype is pyggml.f32 for x in cache.layers)
        assert cache.nbytes == 2 * 16 * (pyggml.dtype(kind).row_bytes(64) + 4 * 64)


@pytest.mark.parametrize("side", ["type_k", "type_v"])
@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "i32", "f8_e9m9", "", 8, None, object()])
def test_other_dtypes_are_refused(side, kind):
    with pytest.raises(DTypeError, match=f"{side}: .*f32, f16, bf16, f8_e4m3, q8_0"):
        make(**{side: kind})


@pytest.mark.parametrize("head_dim", [1, 16, 48, 80, 112])
def test_heads_that_are_not_whole_blocks(head_dim):
    with pytest.raises(ShapeError, match=f"type_v: a head of {head_dim} is not whole blocks of 32"):
        KVCache(8, 1, 2, head_dim, "f16", "q8_0")
    KVCache(8, 1, 2, head_dim, "f8_e4m3", "bf16")


@pytest.mark.parametrize("n", [0, -1])
def test_no_cells(n):
    with pytest.raises(ParameterError):
        make(n)


def test_more_memory_than_there_is():
    with pytest.raises(pyggml.OutOfMemoryError):
        KVCache(1 << 40, 1, 1, 64)


def test_memory_is_counted_for_all_layers(monkeypatch):
    """Each tensor alone would fit, and none of them is touched before the next is made."""
    n_bytes = KVCache(100, 8, 2, 32).nbytes
    monkeypatch.setattr(pyggml._core, "memory_room", lambda: n_bytes)
    KVCache(100, 8, 2, 32)
    monkeypatch.setattr(pyggml._core, "memory_room", lambda: n_bytes - 1)
    with pytest.raises(pyggml.OutOfMemoryError, match=f"100 cells takes {n_bytes} bytes"):
        KVCache(100, 8, 2, 32)


def test_scales_go_to_scaled_sides():
    cache = make(type_k="f8_e4m3", type_v="f16", scales={1: (2.0, 3.0)})
    assert [(x.k_scale, x.v_scale) for x in cache.layers] == [(None, None), (2.0, None)]


def test_found_cells_stay_free_until_committed():
    cache = make()
    assert cache.find_cells(3).tolist() == [0, 1, 2]
    assert cache.find_cells(3).tolist() == [0, 1, 2]
    assert (cache.n_used, cache.length(), cache.sequences) == (0, 0, ())
    assert put(cache, 3) == [0, 1, 2]
    assert (cache.n_used, cache.length(), cache.sequences) == (3, 3, (0,))
    assert cache.find_cells(2).tolist() == [3, 4]


def test_a_full_cache():
    cache = make(4)
    put(cache, 3)
    with pytest.raises(ContextError, match="2 cells needed, 1 of 4 are free"):
        cache.find_cells(2)
    put(cache, 1)
    assert cache.find_cells(0).size == 0


def test_mask_is_causal_and_covers_the_step():
    cache = make()
    put(cache, 2)
    assert seen(cache, [2, 3, 4], [2, 3, 4]) == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert cache.n_used == 2  # asking changed nothing


def test_mask_keeps_sequences_apart():
    cache = make()
    put(cache, 2, seq=0)
    put(cache, 3, seq=7)
    assert seen(cache, [5], [2], seq=0) == [[0, 1, 5]]
    assert seen(cache, [5], [3], seq=7) == [[2, 3, 4, 5]]
    assert seen(cache, [5], [0], seq=3) == [[5]]
    assert cache.sequences == (0, 7)


def test_mask_hides_later_positions():
    cache = make()
    put(cache, 4)
    assert seen(cache, [4], [1]) == [[0, 1, 4]]


def test_shared_cells():
    cache = make()
    put(cache, 2, seq=0)
    cache.share(0, 1)
    put(cache, 1, seq=1)
    assert cache.length(1) == 3
    assert seen(cache, [3], [3], seq=1) == [[0, 1, 2, 3]]
    assert seen(cache, [3], [2], seq=0) == [[0, 1, 3]]
    cache.remove(0)
    assert (cache.n_used, cache.sequences, cache.length(1)) == (3, (1,), 3)
    cache.remove(1)
    assert (cache.n_used, cache.sequences) == (0, ())


@pytest.mark.parametrize(
    ("bounds", "lost", "left"),
    [
        ((3, 6), 3, [0, 1, 2, 6, 7]),
        ((5, None), 3, [0, 1, 2, 3, 4]),
        ((0, None), 8, []),
        ((), 8, []),
        ((4, 4), 0, list(range(8))),
        ((6, 3), 0, list(range(8))),
        ((8, 100), 0, list(range(8))),
        ((7, 8), 1, list(range(7))),
    ],
)
def test_remove(bounds, lost, left):
    cache = make()
    put(cache, 8)
    assert cache.remove(0, *bounds) == lost
    assert sorted(cache.pos[cache.pos >= 0].tolist()) == left
    assert cache.n_used == len(left)
    assert cache.length() == (max(left) + 1 if left else 0)


@pytest.mark.parametrize("bounds", [(-1,), (0, -1), (-3, 5)])
def test_remove_negative_ranges(bounds):
    cache = make()
    put(cache, 4)
    with pytest.raises(ParameterError, match="negative"):
        cache.remove(0, *bounds)
    assert cache.n_used == 4


@pytest.mark.parametrize("seq", [-1, 1.0, "0", True, None])
def test_sequence_ids(seq):
    cache = make()
    for call in (cache.remove, lambda s: cache.share(s, 0), lambda s: put(cache, 1, s)):
        with pytest.raises(ParameterError, match="sequence id"):
            call(seq)
    assert cache.n_used == 0


def test_removed_cells_are_taken_again():
    cache = make(4)
    put(cache, 4)
    cache.remove(0, 1, 3)
    assert cache.find_cells(2).tolist() == [1, 2]


def test_clear():
    cache = make()
    put(cache, 5)
    cache.clear()
    assert (cache.n_used, cache.length(), cache.sequences) == (0, 0, ())
    assert put(cache, 1) == [0]


@pytest.mark.parametrize(
    ("n_cells", "used", "new", "visible"),
    [
        (1000, 0, 1, CELL_BLOCK),
        (1000, 255, 1, CELL_BLOCK),
        (1000, 256, 1, 2 * CELL_BLOCK),
        (1000, 250, 7, 2 * CELL_BLOCK),
        (1000, 767, 1, 768),
        (1000, 768, 1, 1000),
        (100, 3, 1, 100),
        (1000, 300, 0, 2 * CELL_BLOCK),
    ],
)
def test_visible_cells_are_rounded_up(n_cells, used, new, visible):
    cache = KVCache(n_cells, 1, 1, 32)
    put(cache, used)
    assert cache.n_visible(cache.find_cells(new)) == visible


def test_visible_cells_reach_the_last_used_one():
    """A sequence that was removed leaves low cells free; those above them must stay in sight."""
    cache = KVCache(1000, 1, 1, 32)
    put(cache, 300, seq=0)
    put(cache, 2, seq=1)
    cache.remove(0)
    assert cache.find_cells(1).tolist() == [0]
    assert cache.n_visible(cache.find_cells(1)) == 512
