"""rms_norm, norm, l2_norm."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, run

import pyggml as pg
from oracles import norm as oracle

TO_F32 = dict.fromkeys(SCALARS + BLOCKS, "f32")


@pytest.mark.parametrize("eps", [1e-5, 0.0, 1e-6, 2.0])
def test_rms_norm(eps):
    arrays = [rand(7, 65)]
    check_op(pg.ops.rms_norm, arrays, oracle.rms_norm, params={"eps": eps}, result=TO_F32)


def test_rms_norm_of_blocks_and_of_more_axes():
    check_op(pg.ops.rms_norm, [rand(3, 96)], oracle.rms_norm, dtypes=BLOCKS, result=TO_F32)
    check_op(pg.ops.rms_norm, [rand(2, 3, 4, 31)], oracle.rms_norm, dtypes=("f32", "f8_e4m3"))
    check_op(pg.ops.rms_norm, [rand(29)], oracle.rms_norm, dtypes=("f32", "f16"))


@pytest.mark.parametrize("shape", [(300, 576), (3, 40000), (20000, 3), (5, 1), (4, 4096)])
def test_rms_norm_of_many_shapes(shape):
    layouts = ("contiguous", "strided", "in_place")
    check_op(
        pg.ops.rms_norm, [rand(*shape)], oracle.rms_norm, dtypes=("f32", "f16"), layouts=layouts
    )


@pytest.mark.parametrize("dtype", ["f16", "f8_e4m3", "q8_0"])
def test_result_dtype(dtype):
    def fn(x):
        return pg.ops.rms_norm(x, dtype=dtype)

    check_op(fn, [rand(5, 64)], oracle.rms_norm, dtypes=("f32", dtype))


def test_zeros_and_large_values():
    x = np.zeros((2, 8), np.float32)
    x[1] = 1e10
    got = run(pg.ops.rms_norm(pg.Graph().const(x), 1e-5)).numpy()
    assert (got[0] == 0).all()
    np.testing.assert_allclose(got[1], 1, rtol=1e-6)


def test_a_nan_stays_in_its_row():
    x = rand(3, 50)
    x[1, 7] = np.nan
    got = decode(run(pg.ops.rms_norm(pg.Graph().const(encode(x, "f8_e4m3")))))
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()


def test_empty_rows():
    node = pg.ops.rms_norm(pg.Graph().const(np.zeros((3, 0), np.float32)))
    assert run(node).shape == (3, 0)


def test_refused():
    g = pg.Graph()
    for eps in (-1e-9, np.nan, np.inf):
        with pytest.raises(pg.ParameterError, match="rms_norm: eps must be in"):
            pg.ops.rms_norm(g.input(f"e{eps}", (4,)), eps)
    with pytest.raises(pg.ShapeError, match="rms_norm: x needs an axis"):
        pg.ops.rms_norm(g.input("s", ()))
    with pytest.raises(pg.DTypeError, match="float dtype"):
        pg.ops.rms_norm(g.input("i", (4,), "i32"))
    huge = pg.ops.rms_norm(g.input("h", (4, 1 << 33), "f8_e4m3"))
    assert huge.shape == (4, 1 << 33)


# ---- norm and l2_norm ------------------------------------------------------------------------

NORMS = ("norm", "l2_norm")
every_norm = pytest.mark.parametrize("name", NORMS)


def functions(name):
    return getattr(pg.ops, name), getattr(oracle, name)


@every_norm
@pytest.mark.parametrize("eps", [1e-5, 0.0, 1e-6, 2.0])
def test_norms(name, eps):
    fn, ref = functions(name)
    check_op(fn, [rand(7, 65)], ref, params={"eps": eps}, result=TO_F32)


@every_norm
def test_norms_of_blocks_and_of_more_axes(name):
    fn, ref = functions(name)
    check_op(fn, [rand(3, 96)], ref, dtypes=BLOCKS, result=TO_F32)
    check_op(fn, [rand(2, 3, 4, 31)], ref, dtypes=("f32", "f8_e4m3"))
    check_op(fn, [rand(29)], ref, dtypes=("f32", "f16"))


@every_norm
@pytest.mark.parametrize("shape", [(300, 576), (3, 40000), (20000, 3), (4, 4096)])
def test_norms_of_many_shapes(name, shape):
    fn, ref = functions(name)
    layouts = ("contiguous", "strided", "in_place")
    check_op(fn, [rand(*shape)], ref, dtypes=("f32", "f16"), layouts=layouts)


@every_norm
@pytest.mark.parametrize("dtype", ["f16", "f8_e4m3", "q8_0"])
def test_norms_result_dtype(name, dtype):
    fn, ref = functions(name)
    check_op(lambda x: fn(x, dtype=dtype), [rand(5, 64)], ref, dtypes=("f32", dtype))


def test_norm_of_values_far_from_zero():
    check_op(pg.ops.norm, [1e4 + rand(5, 300)], oracle.norm, dtypes=("f32",))
    check_op(pg.ops.norm, [1e6 + rand(5, 300, scale=10.0)], oracle.norm, dtypes=("f32",))


@pytest.mark.parametrize("name", [*NORMS, "rms_norm"])
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e37])
def test_norms_of_large_and_small_values(name, scale):
    fn, ref = functions(name)
    check_op(fn, [rand(4, 50, scale=scale)], ref, params={"eps": 0.0}, dtypes=("f32",))


@pytest.mark.parametrize("name", ["l2_norm", "rms_norm"])
@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_rows_of_codes_longer_than_a_piece(name, scale):
    fn, ref = functions(name)
    check_op(fn, [rand(3, 5001, scale=scale)], ref, params={"eps": 0.0}, dtypes=("f16", "f32"))


def test_rows_without_a_direction():
    def of(name, x, eps):
        return run(functions(name)[0](pg.Graph().const(np.float32(x)), eps)).numpy()

    assert (of("norm", [[5, 5, 5]], 1e-5) == 0).all()
    assert (of("l2_norm", [[0, 0, 0]], 1e-5) == 0).all()
    for name, x in (("norm", [[5, 5, 5]]), ("l2_norm", [[0, 0, 0]])):
        assert np.isnan(of(name, x, 0.0)).all()
    np.testing.assert_allclose(of("l2_norm", [[3e-6, 4e-6]], 1.0), [[3e-6, 4e-6]])
    assert of("norm", [[7]], 1e-5).tolist() == [[0]]
    assert of("l2_norm", [[-7]], 1e-5).tolist() == [[-1]]


@every_norm
def test_norms_keep_a_nan_in_its_row(name):
    for bad in (np.nan, np.inf):
        x = np.float32(rand(3, 50))
        x[1, 7] = bad
        got = run(functions(name)[0](pg.Graph().const(x))).numpy()
        assert np.isnan(got[1, 7])
        assert np.isfinite(got[[0, 2]]).all()


@every_norm
def test_norms_refused(name):
    fn, _ = functions(name)
    g = pg.Graph()
    assert run(fn(g.const(np.zeros((3, 0), np.float32)))).shape == (3, 0)
    for eps in (-1e-9, np.nan, np.inf):
        with pytest.raises(pg.ParameterError, match=f"{name}: eps must be in"):
            fn(g.input(f"e{eps}", (4,)), eps)
    with pytest.raises(pg.ShapeError, match=f"{name}: x needs an axis"):
        fn(g.input("s", ()))
    with pytest.raises(pg.DTypeError, match="float dtype"):
        fn(g.input("i", (4,), "i32"))
