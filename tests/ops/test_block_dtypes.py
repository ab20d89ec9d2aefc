"""Every block format in the ops that take formats: read, written where it has an encoder."""

from __future__ import annotations

import numpy as np
import pytest
from ops.check import (
    assert_close,
    check_op,
    decode,
    encode,
    rand,
    rounded,
    run_threads,
)

import pyggml as pg
from oracles import attention, elementwise, matmul, norm, rows
from oracles import copy as oracle_copy
from pyggml.dtypes import DTYPES

BLOCKS = [d.name for d in DTYPES if d.is_block]
FIXED = [d.name for d in DTYPES if d.is_fixed]
MADE = [name for name in BLOCKS if name not in FIXED]
TO_F32 = dict.fromkeys(BLOCKS, "f32")
LAYOUTS = ("contiguous", "strided", "permuted", "const", "one_row", "empty")
every_block = pytest.mark.parametrize("dtype", BLOCKS)


def width(dtype: str) -> int:
    return max(pg.dtype(dtype).block, 64)


def writable(values: np.ndarray, dtype: str) -> pg.Tensor:
    """The values in memory that ops may write."""
    t = encode(values, dtype)
    return pg.Tensor.from_raw(t.raw().copy(), t.shape, dtype)


@every_block
def test_reads(dtype) -> None:
    n = 2 * width(dtype)
    only = {"dtypes": [dtype], "layouts": LAYOUTS}
    check_op(pg.ops.add, [rand(3, 5, n), rand(3, 5, n, seed=1)], elementwise.add, **only)
    check_op(pg.ops.rms_norm, [rand(5, n)], norm.rms_norm, result=TO_F32, **only)
    ids = np.array([4, 0, 4, 2])
    only |= {"vary": [0], "rows": {1: 0}, "result": TO_F32}
    check_op(pg.ops.get_rows, [rand(5, n), ids], rows.get_rows, **only)


@every_block
@pytest.mark.parametrize("n_tokens", [1, 5, 19])
def test_mul_mat(dtype, n_tokens) -> None:
    # 5 blocks of 64: a panel of columns may only end where a block does
    for k in (width(dtype), 5 * width(dtype)):
        arrays = [rand(21, k), rand(n_tokens, k, seed=1)]
        only = {"dtypes": [dtype], "vary": [0], "layouts": ("contiguous", "strided", "const")}
        check_op(pg.ops.mul_mat, arrays, matmul.mul_mat, result=TO_F32, **only)


@every_block
def test_mul_mat_takes_blocks_as_activations(dtype) -> None:
    arrays = [rand(9, width(dtype)), rand(11, width(dtype), seed=1)]
    check_op(pg.ops.mul_mat, arrays, matmul.mul_mat, dtypes=[dtype], layouts=("contiguous",))


@every_block
def test_attention(dtype) -> None:
    d = width(dtype)
    q, k, v = rand(1, 4, 3, d), rand(1, 2, 70, d, seed=1), rand(1, 2, 70, d, seed=2)
    g = pg.Graph()
    node = pg.ops.flash_attn_ext(
        g.const(pg.tensor(q.astype(np.float32))),
        g.const(encode(k, dtype)),
        g.const(encode(v, dtype)),
        scale=d**-0.5,
    )
    expected = attention.flash_attn_ext(
        q.astype(np.float32), rounded(k, dtype), rounded(v, dtype), scale=d**-0.5
    )
    assert_close(run_threads(node), expected, 1e-5)


@every_block
def test_casts_from(dtype) -> None:
    x = rand(3, 4, width(dtype))
    for to in ("f32", "f16", "bf16", "f8_e4m3", "q8_0"):
        g = pg.Graph()
        result = run_threads(pg.ops.cast(g.const(encode(x, dtype)), to))
        expected = oracle_copy.encode(rounded(x, dtype), to)
        assert np.array_equal(result.raw(), expected.reshape(-1))


@pytest.mark.parametrize("dtype", MADE)
def test_casts_to(dtype) -> None:
    x = rand(3, 4, width(dtype))
    for source in ("f32", "f16", "bf16", "f8_e4m3", "q4_1"):
        for turned in (False, True):
            g = pg.Graph()
            node = g.const(encode(x, source))
            node = pg.ops.permute(node, (1, 0, 2)) if turned else node
            result = run_threads(pg.ops.cast(node, dtype))
            values = rounded(x, source)
            values = values.transpose(1, 0, 2) if turned else values
            assert np.array_equal(result.raw(), oracle_copy.encode(values, dtype).reshape(-1))


@pytest.mark.parametrize("dtype", MADE)
def test_rows_are_written(dtype) -> None:
    n = width(dtype)
    x, table = rand(3, n).astype(np.float32), writable(rand(6, n, seed=1), dtype)
    before = table.raw().reshape(6, -1).copy()
    g = pg.Graph()
    node = pg.ops.set_rows(g.const(table), g.const(pg.tensor(x)), g.const(pg.tensor([5, 0, 2])))
    g.compile(node, threads=2)()
    before[[5, 0, 2]] = oracle_copy.encode(x, dtype)
    assert np.array_equal(table.raw().reshape(6, -1), before)


@pytest.mark.parametrize("dtype", MADE)
def test_results_may_be_stored(dtype) -> None:
    n = width(dtype)
    a, b = rand(3, n), rand(3, n, seed=1)
    g = pg.Graph()
    nodes = [g.const(pg.tensor(v.astype(np.float32))) for v in (a, b)]
    total = (a.astype(np.float32) + b.astype(np.float32)).astype(np.float64)
    assert_close(run_threads(pg.ops.add(*nodes, dtype=dtype)), total)
    # a product whose rows are whole blocks, by few tokens and by many
    for t in (2, 30):
        w, x = rand(n, 32), rand(t, 32, seed=1)
        g = pg.Graph()
        nodes = [g.const(pg.tensor(v.astype(np.float32))) for v in (w, x)]
        assert_close(run_threads(pg.ops.mul_mat(*nodes, dtype=dtype)), x @ w.T)


@pytest.mark.parametrize("dtype", FIXED)
def test_what_has_no_encoder_is_refused(dtype) -> None:
    n = pg.dtype(dtype).block
    g = pg.Graph()
    x = g.const(pg.zeros((4, n)))
    table = g.const(writable(rand(4, n), dtype))
    ids = g.const(pg.tensor([0, 1, 2, 3]))
    for make in (
        lambda: pg.ops.cast(x, dtype),
        lambda: pg.ops.cpy(x, table),
        lambda: pg.ops.set_rows(table, x, ids),
        lambda: pg.ops.add(x, x, dtype=dtype),
        lambda: pg.ops.mul_mat(x, x, dtype=dtype),
        lambda: pg.ops.get_rows(table, ids, dtype=dtype),
        lambda: pg.ops.acc(table, table),
        lambda: pg.ops.acc(table, x),
        lambda: pg.ops.set(table, x),
        lambda: pg.ops.concat(x, x, dtype=dtype),
    ):
        with pytest.raises(pg.DTypeError, match=f"{dtype} can be read|cannot be {dtype}"):
            make()


@every_block
def test_bytes_are_moved(dtype) -> None:
    # what needs no encoder: copies, rows and joints of one dtype
    n = pg.dtype(dtype).block
    a, b = encode(rand(4, n), dtype), encode(rand(2, n, seed=1), dtype)
    g = pg.Graph()
    top, low = g.const(a), g.const(b)
    assert np.array_equal(
        run_threads(pg.ops.cont(top[::2])).raw(), a.raw().reshape(4, -1)[::2].flat
    )
    joined = run_threads(pg.ops.concat(top, low, axis=0))
    assert np.array_equal(joined.raw(), np.concatenate([a.raw(), b.raw()]))
    wide = run_threads(pg.ops.repeat(low, (4, 3 * n)))
    assert np.array_equal(decode(wide), np.tile(decode(b), (2, 3)))
    target = pg.zeros((4, n), dtype)
    g.compile(pg.ops.cpy(top, g.const(target)))()
    assert np.array_equal(target.raw(), a.raw())
    g2 = pg.Graph()
    node = pg.ops.set_rows(g2.const(target), g2.const(b), g2.const(pg.tensor([3, 1])))
    g2.compile(node)()
    assert np.array_equal(target.raw().reshape(4, -1)[[3, 1]].flat, b.raw())
