"""fwht: against the matrix, twice, impulses, other lengths."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, rand, run, run_threads

import pyggml as pg
from oracles import transform as oracle

TO_F32 = dict.fromkeys(SCALARS + BLOCKS, "f32")


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32, 128, 512])
def test_fwht(n, normalized):
    check_op(
        pg.ops.fwht,
        [rand(5, n)],
        oracle.fwht,
        params={"normalized": normalized},
        dtypes=SCALARS + (BLOCKS if n % 32 == 0 else ()),
        result=TO_F32,
    )


@pytest.mark.parametrize("shape", [(2, 3, 4, 64), (256,), (3, 2048), (2000, 16)])
def test_fwht_of_many_shapes(shape):
    layouts = ("contiguous", "strided", "in_place")
    check_op(pg.ops.fwht, [rand(*shape)], oracle.fwht, dtypes=("f32", "f16"), layouts=layouts)


def test_twice_gives_the_operand_back():
    for n in (1, 2, 8, 64, 1 << 16):
        x = np.float32(rand(2, n))
        got = run_threads(pg.ops.fwht(pg.ops.fwht(pg.Graph().const(x)))).numpy()
        np.testing.assert_allclose(got, x, atol=2e-6)
    x = np.float32(np.random.default_rng(0).integers(-99, 99, (3, 64)))
    plain = pg.ops.fwht(pg.ops.fwht(pg.Graph().const(x), False), normalized=False)
    assert np.array_equal(run(plain).numpy(), 64 * x)


def test_impulses_give_the_rows_of_the_matrix():
    got = run(pg.ops.fwht(pg.Graph().const(np.eye(64, dtype=np.float32)), False)).numpy()
    assert np.array_equal(got, oracle.hadamard(64))


@pytest.mark.parametrize("dtype", ["f16", "f8_e4m3", "q8_0"])
def test_result_dtype(dtype):
    check_op(
        lambda x: pg.ops.fwht(x, dtype=dtype), [rand(5, 64)], oracle.fwht, dtypes=("f32", dtype)
    )


def test_nan_and_large_values():
    x = np.float32(rand(3, 32))
    x[1, 5] = np.nan
    got = run(pg.ops.fwht(pg.Graph().const(x))).numpy()
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()
    large = np.full((1, 64), 4e37, np.float32)  # 64 of them pass the range, divided by 8 they fit
    assert run(pg.ops.fwht(pg.Graph().const(large))).numpy()[0, 0] == pytest.approx(3.2e38)


def test_refused():
    g = pg.Graph()
    for i, shape in enumerate(((3, 0), (3, 3), (24,), (2, 96), ())):
        with pytest.raises(pg.ShapeError, match="fwht: the last axis must be a power of two"):
            pg.ops.fwht(g.input(f"x{i}", shape))
    with pytest.raises(pg.DTypeError, match="float dtype"):
        pg.ops.fwht(g.input("i", (4,), "i64"))
    with pytest.raises(pg.ParameterError, match="normalized"):
        pg.ops.fwht(g.input("n", (4,)), 2)
    assert run(pg.ops.fwht(g.const(np.zeros((0, 8), np.float32)))).shape == (0, 8)
