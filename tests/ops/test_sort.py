"""argsort and top_k: stable, NaN last, long rows, small k."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, rand, run, run_threads

import pyggml as pg
from oracles import sort as oracle

FLOATS = SCALARS + BLOCKS
TO_I32 = dict.fromkeys(FLOATS, "i32")
ORDERS = ("asc", "desc")


def order_of(x, order="asc"):
    return run_threads(pg.ops.argsort(pg.Graph().const(np.float32(x)), order)).numpy()


def top_of(x, k):
    return run_threads(pg.ops.top_k(pg.Graph().const(np.float32(x)), k)).numpy()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(7, 96), (3, 4, 5, 32), (64,), (300, 32), (3, 2080)])
def test_argsort(shape, order):
    check_op(
        pg.ops.argsort,
        [rand(*shape)],
        oracle.argsort,
        params={"order": order},
        dtypes=FLOATS,
        result=TO_I32,
        limit=0,
    )


@pytest.mark.parametrize("order", ORDERS)
def test_argsort_of_every_short_length(order):
    for n in range(1, 70):
        x = np.round(rand(5, n), 1)  # with equals
        assert np.array_equal(order_of(x, order), oracle.argsort(np.float32(x), order)), n


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [33, 50_257])
def test_argsort_is_stable(n, order):
    rng = np.random.default_rng(0)
    for values in (3, 100, 10**6):
        x = rng.integers(-values, values, (2, n)) * 0.25
        assert np.array_equal(order_of(x, order), oracle.argsort(x, order))
    assert np.array_equal(order_of(np.ones((1, n)), order)[0], np.arange(n))
    ramp = np.arange(n)[None]
    assert np.array_equal(order_of(ramp, order)[0], ramp[0] if order == "asc" else ramp[0, ::-1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [12, 600])
def test_special_values_in_order(order, n):
    rng = np.random.default_rng(n)
    pool = np.float32([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38])
    x = rng.choice(pool, (20, n))
    got = order_of(x, order)
    assert np.array_equal(got, oracle.argsort(x, order))
    last = np.take_along_axis(x, got, -1)
    counts = np.isnan(x).sum(-1)
    assert all(np.isnan(row[n - c :]).all() for row, c in zip(last, counts, strict=True))
    for k in (1, n // 8, n // 2, n):
        assert np.array_equal(top_of(x, k), oracle.top_k(x, k))


@pytest.mark.parametrize("k", [0, 1, 5, 31, 32])
def test_top_k(k):
    params = {"k": k}
    check_op(
        pg.ops.top_k,
        [rand(7, 32)],
        oracle.top_k,
        params=params,
        dtypes=FLOATS,
        result=TO_I32,
        limit=0,
    )


@pytest.mark.parametrize("k", [1, 2, 40, 262, 263, 300, 2100])
def test_top_k_of_longer_rows(k):
    check_op(
        pg.ops.top_k,
        [rand(3, 2100)],
        oracle.top_k,
        params={"k": k},
        dtypes=("f32", "f8_e4m3"),
        limit=0,
    )


@pytest.mark.parametrize("k", [1, 40, 6000, 8000])
def test_top_k_of_a_vocabulary(k):
    rng = np.random.default_rng(1)
    falling = np.arange(50_257)[::-1]
    rows = [falling, falling[::-1], rng.permutation(falling), rng.integers(0, 9, 50_257)]
    x = np.float32(rows)
    assert np.array_equal(top_of(x, k), oracle.top_k(x, k))


def test_nothing_to_sort():
    for shape in ((3, 0), (0, 5), (0,)):
        assert order_of(np.zeros(shape)).shape == shape
        assert top_of(np.zeros(shape), 0).shape == (*shape[:-1], 0)
    assert top_of(np.zeros((0, 50)), 3).shape == (0, 3)
    assert order_of([[2.0]]).tolist() == [[0]]


def test_the_values_of_top_k_by_get_rows():
    g = pg.Graph()
    x = g.input("x", (50,))
    best = pg.ops.get_rows(x.reshape(50, 1), pg.ops.top_k(x, 3)).reshape(3)
    values = np.float32(rand(50))
    assert np.array_equal(g.compile(best)(x=values), np.sort(values)[::-1][:3])
    assert run(pg.ops.top_k(g.const(values), 1)).numpy()[0] == values.argmax()


def test_refused():
    g = pg.Graph()
    x = g.input("x", (3, 5))
    with pytest.raises(pg.ParameterError, match="order must be one of asc, desc"):
        pg.ops.argsort(x, "down")
    for k in (-1, 6, 2**31, 2**80):
        with pytest.raises(pg.ParameterError, match="top_k: k"):
            pg.ops.top_k(x, k)
    with pytest.raises(pg.ParameterError):
        pg.ops.top_k(x, 1.5)
    for fn in (pg.ops.argsort, lambda a: pg.ops.top_k(a, 1)):
        with pytest.raises(pg.DTypeError, match="float dtype"):
            fn(g.input(f"i{len(g)}", (4,), "i64"))
        with pytest.raises(pg.ShapeError, match="x needs an axis"):
            fn(g.input(f"s{len(g)}", ()))
        with pytest.raises(pg.ShapeError, match=r"passes 2\^31 - 1"):
            fn(g.input(f"h{len(g)}", (2**31,), "f8_e4m3"))
