"""Ops that choose rows or matrices by index: add_id, mul_mat_id."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, guarded, rand, run, run_threads

import pyggml as pg
from oracles import matmul as products
from oracles import rows as oracle

KEEP = {name: name for name in SCALARS}
TO_F32 = dict.fromkeys(BLOCKS, "f32")


def ids_of(*shape, n, kind=np.int64, seed=0):
    return np.random.default_rng(seed).integers(0, n, shape, kind)


# ---- add_id ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("lead", [(9,), (3, 2), (2, 1, 3)])
def test_add_id(lead, kind):
    arrays = [rand(*lead, 64), rand(7, 64, seed=1), ids_of(*lead, n=7, kind=kind)]
    rows = {0: 0, 2: 0}
    check_op(pg.ops.add_id, arrays, oracle.add_id, result=KEEP, rows=rows)
    check_op(pg.ops.add_id, arrays, oracle.add_id, dtypes=BLOCKS, result=TO_F32, rows=rows)


def test_add_id_many_and_wide_rows():
    arrays = [rand(61, 3, 2501), rand(40, 2501, seed=1), ids_of(61, 3, n=40)]
    layouts = ("contiguous", "strided", "in_place")
    check_op(pg.ops.add_id, arrays, oracle.add_id, dtypes=("f32", "f8_e4m3"), layouts=layouts)


def test_add_id_dtypes_that_differ():
    g = pg.Graph()
    a, b = g.input("a", (4, 32), "f16"), g.input("b", (3, 32), "f8_e4m3")
    assert pg.ops.add_id(a, b, [0, 1, 2, 2]).dtype is pg.f32
    assert pg.ops.add_id(a, b, [0, 1, 2, 2], dtype="q8_0").dtype is pg.q8_0


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
def test_add_id_out_of_range(bad, kind):
    g = pg.Graph()
    table = g.const(guarded(encode(rand(5, 8), "f32")))
    node = pg.ops.add_id(g.input("a", (3, 8)), table, g.input("ids", (3,), np.dtype(kind)))
    a = np.ones((3, 8), np.float32)
    for threads in (1, 2, 5):
        program = g.compile(node, threads=threads)
        message = rf"add_id: ids\[1\] = {bad} is outside the rows of b \(5, 8\) f32"
        with pytest.raises(pg.RowIndexError, match=message):
            program(a=a, ids=np.array([4, bad, bad], kind))
        assert program(a=a, ids=np.array([4, 4, 0], kind)).shape == (3, 8)


def test_add_id_with_an_empty_table_and_no_rows():
    g = pg.Graph()
    b = g.const(np.zeros((0, 8), np.float32))
    assert run(pg.ops.add_id(g.const(np.zeros((0, 8), np.float32)), b, [])).shape == (0, 8)
    node = pg.ops.add_id(g.const(np.zeros((1, 8), np.float32)), b, [0])
    with pytest.raises(pg.RowIndexError):
        g.compile(node)()


def test_add_id_refused():
    g = pg.Graph()
    a, b = g.input("a", (4, 8)), g.input("b", (5, 8))
    ids = [0, 1, 2, 3]
    for x, y, i in (
        (g.input("v", (8,)), b, np.int64(0)),
        (a, g.input("c", (5, 9)), ids),
        (a, g.input("d", (1, 5, 8)), ids),
        (a, g.input("e", (8,)), ids),
        (a, b, [0, 1, 2]),
        (a, b, [ids]),
        (g.input("f", (2, 4, 8)), b, ids),
    ):
        with pytest.raises(pg.ShapeError, match="add_id: "):
            pg.ops.add_id(x, y, i)
    with pytest.raises(pg.DTypeError, match="ids must be i32 or i64"):
        pg.ops.add_id(a, b, a[:, 0])
    with pytest.raises(pg.DTypeError, match="a must have a float dtype"):
        pg.ops.add_id(g.input("i", (4, 8), "i32"), b, ids)
    with pytest.raises(pg.DTypeError, match="b must have a float dtype"):
        pg.ops.add_id(a, g.input("j", (5, 8), "i64"), ids)


def test_add_id_nan_stays_in_its_rows():
    a, b = np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    b[1, 2] = np.nan
    got = decode(run(pg.ops.add_id(pg.Graph().const(a), b, [0, 1, 0])))
    assert np.isnan(got).sum() == 1
    assert np.isnan(got[1, 2])


# ---- mul_mat_id ------------------------------------------------------------------------------

FLOATS = SCALARS + BLOCKS


def check_experts(w_shape, x_shape, ids, w_dtype="f32", x_dtype="f32", **params):
    """Within the error of float32 sums, with the same bits for every thread count."""
    w, x = encode(rand(*w_shape), w_dtype), encode(rand(*x_shape, seed=1), x_dtype)
    g = pg.Graph()
    got = run_threads(pg.ops.mul_mat_id(g.const(guarded(w)), g.const(guarded(x)), ids, **params))
    expected = products.mul_mat_id(decode(w), decode(x), ids)
    assert got.shape == expected.shape
    if expected.size:
        bound = (w_shape[-1] + 8) * 2.0**-24
        size = products.mul_mat_id(np.abs(decode(w)), np.abs(decode(x)), ids)
        assert (np.abs(decode(got) - expected) <= bound * size + 1e-30).all()
    return got


@pytest.mark.parametrize("x_dtype", FLOATS)
@pytest.mark.parametrize("w_dtype", FLOATS)
def test_mul_mat_id_every_pair(w_dtype, x_dtype):
    for tokens in (1, 3, 40):
        ids = ids_of(tokens, 2, n=4, kind=np.int32)
        check_experts((4, 33, 96), (tokens, 2, 96), ids, w_dtype, x_dtype)
        check_experts((4, 33, 96), (tokens, 1, 96), ids, w_dtype, x_dtype)


@pytest.mark.parametrize("k", [0, 1, 31, 33, 256, 257, 600])
def test_mul_mat_id_odd_sizes(k):
    for n in (1, 15, 17, 210):
        for tokens in (1, 7, 30):
            check_experts((3, n, k), (tokens, 1, k), ids_of(tokens, 2, n=3))


def test_mul_mat_id_many_tokens_of_one_matrix():
    """Several passes of the panels, and matrices that nobody chose."""
    ids = np.full((300, 2), 5)
    ids[::7, 1] = 2
    check_experts((8, 70, 40), (300, 2, 40), ids)
    check_experts((8, 70, 40), (300, 1, 40), ids, "f8_e4m3", "f16")


@pytest.mark.parametrize("count", [6, 7, 8, 9])
def test_mul_mat_id_around_the_change_of_path(count):
    ids = np.zeros((20, 1), np.int64)
    ids[:count] = 1
    check_experts((2, 50, 64), (20, 1, 64), ids, "q8_0")


def test_mul_mat_id_of_nothing():
    for tokens, used, experts, n in ((0, 2, 3, 5), (4, 0, 3, 5), (2, 2, 3, 0), (0, 1, 0, 5)):
        ids = np.zeros((tokens, used), np.int64)
        check_experts((experts, n, 8), (tokens, used, 8), ids)


def test_mul_mat_id_layouts():
    ids = ids_of(12, 3, n=5, kind=np.int32)
    arrays = [rand(5, 20, 32), rand(12, 3, 32, seed=1), ids]
    check_op(pg.ops.mul_mat_id, arrays, products.mul_mat_id, rows={1: 0, 2: 0}, limit=1e-11)
    check_op(pg.ops.mul_mat_id, arrays, products.mul_mat_id, dtypes=BLOCKS, limit=1e-11,
             rows={1: 0, 2: 0})  # fmt: skip
    few = [arrays[0], arrays[1][:1], ids[:1]]
    check_op(pg.ops.mul_mat_id, few, products.mul_mat_id, limit=1e-11, rows={})


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tokens", [1, 30])
def test_mul_mat_id_result_rounds_once(dtype, tokens):
    g = pg.Graph()
    w, x = g.const(encode(rand(3, 224, 40), "f32")), encode(rand(tokens, 1, 40, seed=1), "f32")
    ids = ids_of(tokens, 2, n=3)
    wide = run(pg.ops.mul_mat_id(w, x, ids)).numpy()
    got = run_threads(pg.ops.mul_mat_id(w, x, ids, dtype=dtype))
    assert np.array_equal(got.raw(), encode(wide, dtype).raw())


def test_mul_mat_id_of_one_matrix_is_mul_mat():
    for tokens in (1, 30):
        g = pg.Graph()
        w, x = g.const(encode(rand(1, 70, 64), "f16")), encode(rand(tokens, 1, 64, seed=1), "f32")
        got = run(pg.ops.mul_mat_id(w, x, np.zeros((tokens, 1), np.int64)))
        other = run(pg.ops.mul_mat(w[0], g.const(x)[:, 0]))
        assert np.array_equal(got.raw(), other.raw())


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("bad", [-1, 4, 2**31 - 1, -(2**31)])
def test_mul_mat_id_out_of_range(bad, kind):
    g = pg.Graph()
    w = g.const(guarded(encode(rand(4, 9, 8), "f32")))
    ids = g.input("ids", (3, 2), np.dtype(kind))
    node = pg.ops.mul_mat_id(w, g.input("x", (3, 1, 8), "f16"), ids)
    x = np.ones((3, 1, 8), np.float16)
    for threads in (1, 2, 5):
        program = g.compile(node, threads=threads)
        message = rf"mul_mat_id: ids\[3\] = {bad} is outside the rows of w \(4, 9, 8\) f32"
        with pytest.raises(pg.RowIndexError, match=message):
            program(x=x, ids=np.array([[0, 1], [2, bad], [bad, -9]], kind))
        assert program(x=x, ids=np.array([[0, 1], [2, 3], [3, 3]], kind)).shape == (3, 2, 9)


def test_mul_mat_id_without_matrices():
    g = pg.Graph()
    node = pg.ops.mul_mat_id(g.input("w", (0, 4, 8)), g.input("x", (1, 1, 8)), [[0]])
    with pytest.raises(pg.RowIndexError):
        g.compile(node)(w=np.zeros((0, 4, 8), "f4"), x=np.zeros((1, 1, 8), "f4"))


@pytest.mark.parametrize("tokens", [2, 40])
def test_mul_mat_id_nan_stays_with_its_token_and_matrix(tokens):
    w, x = rand(3, 20, 40).astype(np.float32), rand(tokens, 1, 40, seed=1).astype(np.float32)
    ids = np.arange(tokens)[:, None] % 2
    w[2] = np.nan
    w[1, 7, 39] = np.nan
    x[1, 0, 0] = np.nan
    got = run(pg.ops.mul_mat_id(pg.Graph().const(w), x, ids)).numpy()[:, 0]
    expected = np.zeros((tokens, 20), bool)
    expected[1] = True
    expected[1::2, 7] = True
    assert np.array_equal(np.isnan(got), expected)


def test_mul_mat_id_refused():
    g = pg.Graph()
    w, x, ids = g.input("w", (4, 9, 8)), g.input("x", (3, 2, 8)), ids_of(3, 2, n=4)
    for a, b, i in (
        (g.input("w2", (9, 8)), x, ids),
        (g.input("w4", (1, 4, 9, 8)), x, ids),
        (w, g.input("x2", (3, 8)), ids),
        (w, x, ids[0]),
        (w, g.input("k", (3, 2, 7)), ids),
        (w, g.input("t", (4, 2, 8)), ids),
        (w, g.input("u", (3, 3, 8)), ids),
        (w, x, np.zeros((3, 3), np.int64)),
    ):
        with pytest.raises(pg.ShapeError, match="mul_mat_id: "):
            pg.ops.mul_mat_id(a, b, i)
    with pytest.raises(pg.DTypeError, match="ids must be i32 or i64"):
        pg.ops.mul_mat_id(w, x, x[:, :, 0])
    with pytest.raises(pg.DTypeError, match="w must have a float dtype"):
        pg.ops.mul_mat_id(g.input("i", (4, 9, 8), "i32"), x, ids)
    with pytest.raises(pg.DTypeError, match="x must have a float dtype"):
        pg.ops.mul_mat_id(w, g.input("j", (3, 2, 8), "i64"), ids)
    with pytest.raises(pg.ShapeError, match="the last axis has 9"):
        pg.ops.mul_mat_id(w, x, ids, dtype="q8_0")
