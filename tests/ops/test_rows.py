"""get_rows and set_rows: indices of every kind (B6), faults, order of writes."""

import numpy as np
import pytest
from ops.check import (
    BLOCKS,
    SCALARS,
    check_op,
    decode,
    encode,
    guarded,
    rand,
    run,
    run_threads,
)

import pyggml as pg
from oracles import copy as oracle_copy
from oracles import rows as oracle

FLOATS = SCALARS + BLOCKS
TO_F32 = dict.fromkeys(FLOATS, "f32")


def ids_of(*shape, n, kind=np.int64, seed=0):
    return np.random.default_rng(seed).integers(0, n, shape, kind)


# ---- get_rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_get_rows(kind):
    arrays = [rand(11, 64), ids_of(9, n=11, kind=kind)]
    check_op(pg.ops.get_rows, arrays, oracle.get_rows, dtypes=FLOATS, result=TO_F32, rows={1: 0})


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (2, 1, 3)])
def test_ids_of_any_shape(shape):
    arrays = [rand(7, 33), ids_of(*shape, n=7)]
    check_op(pg.ops.get_rows, arrays, oracle.get_rows, dtypes=("f32", "f8_e4m3"), rows={1: 0})


@pytest.mark.parametrize("batch", [(2,), (1,), (2, 3), (1, 3)])
def test_batches_have_ids_of_their_own(batch):
    arrays = [rand(*batch, 7, 32), ids_of(*batch, 4, n=7)]
    dtypes = ("f32", "bf16", "q8_0")
    check_op(pg.ops.get_rows, arrays, oracle.get_rows, dtypes=dtypes, rows={1: -1})


def test_many_and_wide_rows():
    arrays = [rand(40, 5003), ids_of(61, n=40)]
    layouts = ("contiguous", "strided", "permuted")
    check_op(pg.ops.get_rows, arrays, oracle.get_rows, dtypes=("f32", "f8_e4m3"), layouts=layouts)


@pytest.mark.parametrize("dtype", FLOATS)
def test_get_rows_dtype(dtype):
    table = encode(rand(6, 64, scale=4.0), dtype)
    for result in FLOATS:
        node = pg.ops.get_rows(pg.Graph().const(table), [5, 0, 5], dtype=result)
        assert node.dtype.name == result
        rows = decode(table)[[5, 0, 5]]
        if result != dtype:
            rows = oracle_copy.cast(rows.astype(np.float32), result)
        np.testing.assert_array_equal(decode(run(node)), rows)


def test_ids_may_be_lists_tensors_arrays_or_nodes():
    table = rand(5, 8).astype(np.float32)
    g = pg.Graph()
    node = g.const(table)
    wanted = [4, 0, 4]
    for ids in (
        wanted,
        tuple(wanted),
        np.array(wanted, np.uint8),
        np.array(wanted, np.int32),
        pg.tensor(np.array(wanted)),
        g.const(np.array(wanted)),
        g.const(np.array([9, 4, 9, 0, 9, 4]))[1::2],
    ):
        np.testing.assert_array_equal(run(pg.ops.get_rows(node, ids)).numpy(), table[wanted])


@pytest.mark.parametrize("empty", [[], np.zeros(0, np.int32), np.zeros(0, np.int64)])
def test_no_ids_give_no_rows(empty):
    node = pg.ops.get_rows(pg.Graph().const(rand(5, 8).astype(np.float32)), empty)
    assert node.shape == (0, 8)
    assert run(node).shape == (0, 8)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
def test_index_out_of_range(bad, kind):
    g = pg.Graph()
    table = g.const(guarded(encode(rand(5, 8), "f32")))
    rows = pg.ops.get_rows(table, g.input("ids", (3,), np.dtype(kind)))
    for threads in (1, 2, 5):
        program = g.compile(rows, threads=threads)
        message = rf"get_rows: ids\[1\] = {bad} is outside the rows of x \(5, 8\) f32"
        with pytest.raises(pg.RowIndexError, match=message):
            program(ids=np.array([4, bad, 0], kind))
        with pytest.raises(IndexError):
            program(ids=np.array([4, bad, 0], kind))
        assert program(ids=np.array([4, 4, 0], kind)).shape == (3, 8)


def test_wide_bad_ids_and_an_empty_table():
    for bad in (2**32, 2**63 - 1, -(2**63), 2**32 + 1):
        node = pg.ops.get_rows(pg.Graph().const(rand(5, 8).astype(np.float32)), [0, bad])
        with pytest.raises(pg.RowIndexError, match=f"ids\\[1\\] = {bad}"):
            node.graph.compile(node)()
    node = pg.ops.get_rows(pg.Graph().const(np.zeros((0, 8), np.float32)), [0])
    with pytest.raises(pg.RowIndexError):
        node.graph.compile(node)()


@pytest.mark.parametrize("at", [1234, 1850])
def test_the_first_bad_id_is_named_whatever_the_threads(at):
    # 1850 ends what the first of two threads takes, the other begins near 1870
    ids = ids_of(4000, n=50)
    ids[[at, at + 1, 1870, 3999]] = [77, -5, 99, 88]
    node = pg.ops.get_rows(pg.Graph().const(rand(50, 64).astype(np.float32)), ids)
    for threads in (1, 2, 2, 2, 2, 5):
        with pytest.raises(pg.RowIndexError, match=rf"ids\[{at}\] = 77"):
            node.graph.compile(node, threads=threads)()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_get_rows_of_integers(kind):
    info = np.iinfo(kind)
    table = np.random.default_rng(0).integers(info.min, info.max, (7, 3000), kind)
    ids = [6, 0, 0, 3]
    g = pg.Graph()
    for dtype in (None, np.dtype(kind).name.replace("int", "i")):
        got = run_threads(pg.ops.get_rows(g.const(table), ids, dtype=dtype)).numpy()
        assert got.dtype == kind
        assert np.array_equal(got, table[ids])
    strided = pg.ops.get_rows(g.const(table)[::2, 1::3], [3, 1])
    assert np.array_equal(run_threads(strided).numpy(), table[::2, 1::3][[3, 1]])
    with pytest.raises(pg.RowIndexError, match=r"ids\[1\] = 7"):
        run(pg.ops.get_rows(g.const(table), [0, 7]))


def test_get_rows_refused():
    g = pg.Graph()
    table, batch = g.input("t", (5, 8)), g.input("b", (2, 5, 8))
    for x, ids in (
        (g.input("v", (5,)), [0]),
        (table, np.int64(0)),
        (table, np.zeros((1, 1, 1, 1), np.int64)),
        (batch, [0]),
        (batch, np.zeros((3, 1), np.int64)),
        (batch, np.zeros((1, 1), np.int64)),
        (batch, np.zeros((2, 1, 1), np.int64)),
    ):
        with pytest.raises(pg.ShapeError, match="get_rows: "):
            pg.ops.get_rows(x, ids)
    for ids in ([0.5], [True], np.float32([1]), np.array([1], np.uint64), table[0]):
        with pytest.raises(pg.DTypeError, match="ids"):
            pg.ops.get_rows(table, ids)
    for other in ("f32", "i64"):
        with pytest.raises(pg.DTypeError, match="a table of integers keeps its dtype"):
            pg.ops.get_rows(g.input(f"to {other}", (5, 8), "i32"), [0], dtype=other)
    with pytest.raises(pg.ShapeError, match="block"):
        pg.ops.get_rows(table, [0], dtype="q8_0")


# ---- set_rows --------------------------------------------------------------------------------


def set_and_check(dst_dtype, x, ids, shape, where=np.s_[...], threads=1):
    """Runs set_rows on a view of a guarded tensor; everything outside the view must stay."""
    before = encode(np.random.default_rng(9).standard_normal(shape), dst_dtype)
    target = guarded(before)
    g = pg.Graph()
    out = pg.ops.set_rows(g.const(target)[where], x, ids)
    result = g.compile(out, threads=threads)()
    expected = decode(before)
    values = decode(x)
    if x.dtype.name != dst_dtype:
        values = oracle_copy.cast(values.astype(np.float32), dst_dtype)
    expected[where] = oracle.set_rows(expected[where], values, ids)
    np.testing.assert_array_equal(decode(target), expected)
    np.testing.assert_array_equal(decode(result), expected[where])


@pytest.mark.parametrize("dst", FLOATS)
@pytest.mark.parametrize("src", FLOATS)
def test_set_rows_every_pair(src, dst):
    x = encode(rand(4, 64, scale=9.0), src)
    for threads in (1, 2, 5):
        set_and_check(dst, x, np.array([6, 0, 3, 1]), (7, 64), threads=threads)


@pytest.mark.parametrize("where", [np.s_[2:], np.s_[::3], np.s_[:, ::2], np.s_[1::2, 3:20]])
@pytest.mark.parametrize("dst", ["f32", "f8_e4m3"])
def test_set_rows_of_a_strided_dst(dst, where):
    n, width = np.empty((12, 40))[where].shape
    x = encode(rand(3, width), "f32")
    set_and_check(dst, x, np.array([n - 1, 0, 1], np.int32), (12, 40), where, threads=2)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("batch", [(2,), (2, 3), (1, 3)])
def test_set_rows_of_batches(batch, shared):
    x = encode(rand(*batch, 4, 32), "f32")
    ids = ids_of(4, n=9) if shared else ids_of(*batch, 4, n=9)
    for dst in ("f16", "q8_0"):
        set_and_check(dst, x, ids, (*batch, 9, 32), threads=2)


def test_many_ids_through_a_conversion():
    x = encode(rand(3000, 64), "f16")
    ids = np.random.default_rng(2).permutation(4000)[:3000]
    for threads in (1, 3):
        set_and_check("bf16", x, ids, (4000, 64), threads=threads)


@pytest.mark.parametrize("width", [1, 192, 2500])
def test_the_last_of_equal_ids_wins(width):
    x = encode(rand(512, width), "f32")
    for ids in (np.zeros(512, np.int64), ids_of(512, n=5), ids_of(512, n=1000)):
        for threads in (1, 2, 5):
            set_and_check("f8_e4m3", x, ids, (1000, width), threads=threads)


def test_a_strided_x_and_a_later_reader():
    target = pg.zeros((8, 6), "f16")
    g = pg.Graph()
    x = g.const(rand(6, 12).astype(np.float32))
    wrote = pg.ops.set_rows(target, x.T[::4], [5, 2, 7])
    out = pg.ops.get_rows(wrote, [7, 5, 0])
    got = g.compile(out, threads=2)()
    stored = decode(encode(rand(6, 12), "f16")).T[::4]
    np.testing.assert_array_equal(got, [stored[2], stored[0], np.zeros(6)])


def test_set_rows_of_nothing():
    set_and_check("f32", encode(np.zeros((0, 5)), "f32"), np.zeros(0, np.int64), (4, 5))
    set_and_check("f32", encode(np.zeros((2, 0)), "f32"), np.array([1, 3]), (4, 0))


@pytest.mark.parametrize("bad", [-1, 6, 2**31 - 1, 2**40])
def test_nothing_is_written_when_an_id_is_bad(bad):
    target = guarded(encode(rand(6, 3000), "f32"))
    before = target.numpy().copy()
    g = pg.Graph()
    wrote = pg.ops.set_rows(target, g.input("x", (4, 3000)), g.input("ids", (4,), "i64"))
    x = np.ones((4, 3000), np.float32)
    for threads in (1, 2, 5):
        program = g.compile(wrote, threads=threads)
        message = rf"set_rows: ids\[2\] = {bad} is outside the rows of dst \(6, 3000\) f32"
        with pytest.raises(pg.RowIndexError, match=message):
            program(x=x, ids=np.array([0, 1, bad, -9]))
        assert np.array_equal(target.numpy(), before)
    program(x=x, ids=np.array([0, 1, 2, 3]))
    assert (target.numpy()[:4] == 1).all()


def test_set_rows_refused():
    g = pg.Graph()
    x, dst, batch = g.input("x", (4, 8)), pg.zeros((6, 8)), pg.zeros((2, 6, 8))
    ids = [0, 1, 2, 3]
    locked = np.zeros((6, 8), np.float32)
    locked.flags.writeable = False
    with pytest.raises(pg.ReadOnlyError, match="set_rows: dst is read-only"):
        pg.ops.set_rows(locked, x, ids)
    for where, rows, index in (
        (pg.zeros((8,)), x, ids),
        (pg.zeros((6, 9)), x, ids),
        (batch, x, ids),
        (batch, g.input("y", (3, 4, 8)), ids),
        (dst, x, [0, 1, 2]),
        (dst, x, [ids]),
        (batch, g.input("z", (2, 4, 8)), np.zeros((3, 4), np.int64)),
        (batch, g.input("w", (2, 4, 8)), np.zeros((2, 3), np.int64)),
    ):
        with pytest.raises(pg.ShapeError, match="set_rows: "):
            pg.ops.set_rows(where, rows, index)
    with pytest.raises(pg.DTypeError, match="ids must be i32 or i64"):
        pg.ops.set_rows(dst, x, x[:, 0])
    with pytest.raises(pg.DTypeError, match="dst must have a float dtype"):
        pg.ops.set_rows(pg.zeros((6, 8), "i32"), x, ids)
    with pytest.raises(pg.DTypeError, match="x must have a float dtype"):
        pg.ops.set_rows(dst, g.input("j", (4, 8), "i64"), ids)


def test_a_node_may_be_dst():
    x = rand(5, 8)
    g = pg.Graph()
    base = pg.ops.cont(g.input("x", x.shape))
    wrote = pg.ops.set_rows(base, np.ones((1, 8), np.float32), [3])
    got = run_threads(wrote, {"x": encode(x, "f32")}).numpy()
    expected = x.astype(np.float32)
    expected[3] = 1
    np.testing.assert_array_equal(got, expected)
