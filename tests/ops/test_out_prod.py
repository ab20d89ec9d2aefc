"""out_prod against float64: dtypes, layouts, sizes around the panels, batches."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, guarded, rand, run, run_threads

import pyggml as pg
from oracles import matmul as oracle

FLOATS = SCALARS + BLOCKS
LAYOUTS = ("contiguous", "strided", "permuted", "in_place", "const")


def test_every_layout():
    arrays = [rand(9, 21), rand(9, 13, seed=1)]
    result = dict.fromkeys(SCALARS, "f32")
    check_op(pg.ops.out_prod, arrays, oracle.out_prod, result=result, rows={0: 0, 1: 0})


@pytest.mark.parametrize("b", FLOATS)
@pytest.mark.parametrize("a", FLOATS)
def test_every_pair_of_dtypes(a, b):
    x, y = encode(rand(40, 96), a), encode(rand(40, 64, seed=1), b)
    g = pg.Graph()
    got = run_threads(pg.ops.out_prod(g.const(x), y))
    expected = oracle.out_prod(decode(x), decode(y))
    assert np.abs(decode(got) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("k", [0, 1, 2, 31, 255, 256, 257, 600])
def test_sizes(k):
    for m, n in ((1, 1), (15, 3), (16, 300), (17, 257), (70, 48), (1000, 2)):
        arrays = [rand(k, m), rand(k, n, seed=1)]
        check_op(pg.ops.out_prod, arrays, oracle.out_prod, dtypes=("f32",), layouts=("const",))


@pytest.mark.parametrize(
    ("a", "b"),
    [((), (3,)), ((2,), (2,)), ((2,), (6,)), ((1,), (4,)), ((2, 3), (4, 9)), ((3,), (2, 3))],
)
def test_leading_axes(a, b):
    arrays = [rand(*a, 7, 19), rand(*b, 7, 10, seed=1)]
    check_op(pg.ops.out_prod, arrays, oracle.out_prod, layouts=LAYOUTS, dtypes=("f32", "f8_e4m3"))


def test_nothing_in_nothing_out():
    for a, b in (((5, 0), (5, 3)), ((5, 3), (5, 0))):
        arrays = [rand(*a), rand(*b)]
        check_op(pg.ops.out_prod, arrays, oracle.out_prod, dtypes=("f32",), layouts=("const",))
    a = pg.Graph().const(np.zeros((0, 5, 3), np.float32))
    assert run(pg.ops.out_prod(a, np.zeros((0, 5, 2), np.float32))).shape == (0, 2, 3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_result_dtype_rounds_once(dtype):
    g = pg.Graph()
    a, b = g.const(encode(rand(40, 160), "f32")), encode(rand(40, 290, seed=1), "f32")
    wide = run(pg.ops.out_prod(a, b)).numpy()
    got = run_threads(pg.ops.out_prod(a, b, dtype=dtype))
    assert np.array_equal(got.raw(), encode(wide, dtype).raw())


def test_is_mul_mat_of_the_transposes():
    g = pg.Graph()
    a, b = g.const(encode(rand(300, 40), "f16")), g.const(encode(rand(300, 33, seed=1), "f32"))
    got, other = run(pg.ops.out_prod(a, b)), run(pg.ops.mul_mat(a.T, b.T))
    assert np.array_equal(got.raw(), other.raw())


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_nan_reaches_its_column_only(code):
    a = guarded(encode(rand(20, 70), "f8_e4m3"))
    b = rand(20, 9, seed=1).astype(np.float32)
    clean = run(pg.ops.out_prod(pg.Graph().const(a), b)).numpy()
    a.raw().reshape(20, 70)[19, 69] = code
    got = run(pg.ops.out_prod(pg.Graph().const(a), b)).numpy()
    assert np.isnan(got[:, 69]).all()
    assert np.array_equal(got[:, :69], clean[:, :69])


def test_refused():
    g = pg.Graph()
    a = g.input("a", (5, 8))
    for i, (shape, message) in enumerate(
        [((6, 8), "the sizes K differ: a 'a' is"), ((5,), "a must be"), ((), "a must be")]
    ):
        with pytest.raises(pg.ShapeError, match=f"out_prod: {message}"):
            pg.ops.out_prod(a, g.input(f"b{i}", shape))
    for i, (left, right) in enumerate([((2,), (3,)), ((0,), (2,)), ((2,), ())]):
        with pytest.raises(pg.ShapeError, match="leading axes of b must be multiples"):
            pg.ops.out_prod(g.input(f"c{i}", (*left, 5, 8)), g.input(f"d{i}", (*right, 5, 8)))
    with pytest.raises(pg.DTypeError, match="b must have a float dtype"):
        pg.ops.out_prod(a, g.input("i", (5, 8), "i32"))
    with pytest.raises(pg.DTypeError, match="cannot be i64"):
        pg.ops.out_prod(a, a, dtype="i64")
    with pytest.raises(pg.ShapeError, match="out_prod: the last axis has 8"):
        pg.ops.out_prod(a, a, dtype="q8_0")
    assert pg.ops.out_prod(g.input("e", (2, 65536)), g.input("f", (2, 65536))).shape == (65536,) * 2
