"""sum, sum_rows, mean, cumsum, argmax: long rows, cancellation, NaN, nothing at all."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, rand, run, run_threads

import pyggml as pg
from oracles import reduce as oracle

FLOATS = SCALARS + BLOCKS
TO_F32 = dict.fromkeys(FLOATS, "f32")
TO_I32 = dict.fromkeys(FLOATS, "i32")
SUMS = ("sum", "sum_rows", "mean", "cumsum")
every_sum = pytest.mark.parametrize("name", SUMS)


def functions(name):
    return getattr(pg.ops, name), getattr(oracle, name)


def of(name, x, **params):
    return run_threads(functions(name)[0](pg.Graph().const(np.float32(x)), **params)).numpy()


@every_sum
def test_sums(name):
    fn, ref = functions(name)
    check_op(fn, [rand(7, 96)], ref, dtypes=FLOATS, result=TO_F32)
    check_op(fn, [rand(3, 4, 5, 31)], ref, dtypes=("f32", "f8_e4m3"))
    check_op(fn, [rand(29)], ref, dtypes=("f32", "f16"))


@every_sum
@pytest.mark.parametrize("shape", [(3, 70_001), (300, 500), (9000, 3), (200_001,), (5, 1)])
def test_sums_of_many_shapes(name, shape):
    fn, ref = functions(name)
    layouts = ("contiguous", "strided", "in_place")
    check_op(fn, [rand(*shape)], ref, dtypes=("f32", "bf16"), layouts=layouts)


@every_sum
def test_long_rows_of_one_sign(name):
    """An F32 sum would be off by 1e-3 here."""
    x = np.float32(0.1) + np.float32(1e-3) * rand(2_000_000)
    got, expected = of(name, x), functions(name)[1](np.float32(x))
    np.testing.assert_allclose(got, expected, rtol=6e-8)


@every_sum
def test_cancellation(name):
    x = np.float32(rand(4, 40_000))
    x = np.concatenate([x * 1e8, -x[:, ::-1] * 1e8, np.float32(rand(4, 3, seed=1))], -1)
    np.testing.assert_allclose(of(name, x), functions(name)[1](x), rtol=1e-6, atol=2e-4)


def test_a_sum_overflows_only_at_its_end():
    x = np.float32([[3e38, 3e38, -3e38], [3e38, 3e38, 1]])
    assert of("sum_rows", x).tolist() == [[np.float32(3e38)], [np.inf]]
    assert np.allclose(of("mean", x)[:, 0], [1e38, 2e38])
    assert of("cumsum", x)[0].tolist() == [np.float32(3e38), np.inf, np.float32(3e38)]
    assert of("sum", x) == np.inf


def test_nan_and_infinity():
    x = np.float32([[1, np.nan, 2], [1, np.inf, 2], [np.inf, -np.inf, 0], [1, 2, 3]])
    for name in ("sum_rows", "mean"):
        got = of(name, x)[:, 0]
        assert np.isnan(got[[0, 2]]).all()
        assert got[1] == np.inf
        assert np.isfinite(got[3])
    got = of("cumsum", x)
    assert got[3].tolist() == [1, 3, 6]
    assert got[0, 0] == 1
    assert np.isnan(got[0, 1:]).all()
    assert got[1].tolist() == [1, np.inf, np.inf]
    assert got[2, 0] == np.inf
    assert np.isnan(got[2, 1:]).all()
    assert np.isnan(of("sum", x))


@every_sum
def test_result_dtype(name):
    fn, ref = functions(name)
    for dtype in ("f16", "f8_e4m3"):
        node = fn(pg.Graph().const(np.float32(rand(3, 8))), dtype=dtype)
        assert node.dtype.name == dtype
        check_op(lambda x, d=dtype: fn(x, dtype=d), [rand(3, 8)], ref, dtypes=("f32",))
    with pytest.raises(pg.DTypeError, match="cannot be i64"):
        fn(pg.Graph().input("x", (4,)), dtype="i64")


def test_nothing_to_add():
    none = np.zeros((3, 0))
    assert of("sum", none) == 0
    assert of("sum_rows", none).tolist() == [[0]] * 3
    assert np.isnan(of("mean", none)).all()
    assert of("cumsum", none).shape == (3, 0)
    assert of("sum", np.zeros((0, 5))) == 0
    assert of("sum", 3.0) == 3


def test_refused():
    g = pg.Graph()
    for name in (*SUMS, "argmax"):
        fn = getattr(pg.ops, name)
        with pytest.raises(pg.DTypeError, match=f"{name}: x must have a float dtype"):
            fn(g.input(f"i{name}", (4,), "i32"))
        if name != "sum":
            with pytest.raises(pg.ShapeError, match=f"{name}: x needs an axis"):
                fn(g.input(f"s{name}", ()))
    for n in (0, 2**31):
        with pytest.raises(pg.ShapeError, match=r"argmax: the last axis must have 1 to 2\^31 - 1"):
            pg.ops.argmax(g.input(f"e{n}", (3, n), "f8_e4m3"))
    with pytest.raises(pg.ShapeError, match="multiple of its block"):
        pg.ops.sum(g.input("b", (4,)), dtype="q8_0")


# ---- argmax ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7, 96), (3, 4, 5, 32), (64,), (300, 64), (4, 5024), (3, 32)])
def test_argmax(shape):
    check_op(pg.ops.argmax, [rand(*shape)], oracle.argmax, dtypes=FLOATS, result=TO_I32, limit=0)


def test_argmax_takes_the_first_of_equals():
    for n in (1, 7, 8, 9, 2049, 5000):
        for first in {0, n // 2, n - 1}:
            for value in (1.0, -np.inf, np.inf, -3.0):
                x = np.full((1, n), -np.inf, np.float32)
                x[0, first:] = value
                assert of("argmax", x)[0] == (first if value > -np.inf else 0)
    assert of("argmax", [[-0.0, 0.0], [0.0, -0.0]]).tolist() == [0, 0]


def test_argmax_takes_the_first_nan():
    for n in (3, 8, 20, 4100):
        for at in {0, 1, n // 2, n - 2}:
            x = np.float32(rand(1, n))
            x[0, -1] = np.inf
            x[0, [at, n - 2]] = np.nan
            assert of("argmax", x)[0] == at
    e4m3 = pg.Tensor.from_raw(bytes([0x7E, 0x38, 0xFF, 0x7F]), (4,), "f8_e4m3")
    assert run(pg.ops.argmax(pg.Graph().const(e4m3))).numpy() == 2


def test_cumsum_begins_with_the_element_itself() -> None:
    got = of("cumsum", np.array([[-0.0, -0.0, 1.0]]))
    assert np.signbit(got).tolist() == [[True, True, False]]
