"""Ops of one operand: every function of pyggml/ops/unary.py, in every layout."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, run, run_threads

import pyggml as pg
from oracles import unary as oracle
from pyggml.ops import unary

KEEP = {name: name for name in SCALARS}
TO_F32 = dict.fromkeys(BLOCKS, "f32")
POSITIVE = ("sqrt", "log")
ALL = unary.__all__
PARAMS = {"scale": {"s": -1.5, "bias": 0.25}, "clamp": {"min": -0.5, "max": 1.5}}
PARAMS["leaky_relu"] = {"slope": 0.25}


def values(name, *shape, seed=0):
    x = rand(*shape, seed=seed, scale=1.0 if name == "exp" else 3.0)
    return np.abs(x) + 0.1 if name in POSITIVE else x


def call(name, x, **params):
    return getattr(pg.ops, name)(x, **(PARAMS.get(name, {}) | params))


def node_of(x, dtype="f32"):
    return pg.Graph().const(encode(np.asarray(x), dtype))


@pytest.mark.parametrize("name", ALL)
def test_every_layout(name):
    params = PARAMS.get(name, {})
    fn, ref = getattr(pg.ops, name), getattr(oracle, name)
    check_op(fn, [values(name, 5, 37)], ref, params=params, result=KEEP)
    check_op(fn, [values(name, 2, 3, 1, 7)], ref, params=params, dtypes=("f32", "f8_e4m3"))


@pytest.mark.parametrize("name", ALL)
def test_blocks_give_f32(name):
    # the 0.1 of the positive ones is more than a block rounds away
    x = np.sign(values(name, 3, 64)) * (np.abs(values(name, 3, 64)) + 4.0)
    params = PARAMS.get(name, {})
    fn, ref = getattr(pg.ops, name), getattr(oracle, name)
    check_op(fn, [x], ref, params=params, dtypes=BLOCKS, result=TO_F32)


@pytest.mark.parametrize("name", ALL)
def test_many_tasks(name):
    params = PARAMS.get(name, {})
    fn, ref = getattr(pg.ops, name), getattr(oracle, name)
    layouts = ("contiguous", "permuted", "in_place")
    check_op(fn, [values(name, 90, 503)], ref, params=params, dtypes=("f32",), layouts=layouts)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["f16", "f8_e4m3", "q8_0"])
def test_result_dtype(name, dtype):
    x = node_of(values(name, 4, 32))
    narrow = run(call(name, x, dtype=dtype))
    wide = run(call(name, x)).numpy()
    assert narrow.dtype.name == dtype
    assert np.array_equal(narrow.raw(), encode(wide, dtype).raw())


@pytest.mark.parametrize("name", ALL)
def test_shapes_of_nothing_and_of_one(name):
    for shape in ((), (0,), (1,), (0, 5), (3, 0), (1, 1, 1, 1)):
        x = values(name, *shape)
        got = run_threads(call(name, node_of(x)))
        assert got.shape == shape
        expected = getattr(oracle, name)(encode(x, "f32").numpy(), **PARAMS.get(name, {}))
        np.testing.assert_allclose(decode(got), expected, rtol=1e-6)
    assert call(name, pg.Graph().input("x", (65536, 65536), "f8_e4m3")).shape == (65536, 65536)


@pytest.mark.parametrize("name", ALL)
def test_nan_inf_and_huge(name):
    x = np.float32([np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-45, -1e-40])
    for dtype in ("f32", "bf16"):
        got = run(call(name, node_of(x, dtype), dtype="f32")).numpy()
        seen = decode(encode(x, dtype))
        with np.errstate(all="ignore"):
            expected = getattr(oracle, name)(seen, **PARAMS.get(name, {})).astype(np.float32)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_nan_code_stays_nan(code):
    raw = np.array([0x38, code, 0xB8], np.uint8)
    for name in ALL:
        x = pg.Graph().const(pg.Tensor.from_raw(raw, (3,), "f8_e4m3"))
        got = decode(run(call(name, x)))
        assert np.isnan(got[1]) == (name != "step"), name
        assert np.isnan(got).sum() <= 1 + (name in POSITIVE)


def test_narrow_results_saturate_or_overflow():
    x = node_of([100.0, -200.0])
    assert list(decode(run(pg.ops.exp(x, dtype="f8_e4m3")))) == [448, 0]
    assert list(decode(run(pg.ops.exp(x, dtype="f16")))) == [np.inf, 0]
    assert list(decode(run(pg.ops.sqr(x, dtype="f8_e4m3")))) == [448, 448]


def test_large_angles():
    x = np.float32([1e5, -1e5, 5e5, 1048575.9, 1048577.0, 3e6, 1e22, -3.4e38])
    for name in ("sin", "cos"):
        got = run(call(name, node_of(x))).numpy()
        np.testing.assert_allclose(got, getattr(oracle, name)(x), rtol=3e-7)


def test_softplus_and_sigmoid_do_not_overflow_or_vanish():
    x = np.float32([-100, -80, 80, 100, 1e30, -1e30])
    got = run(pg.ops.softplus(node_of(x))).numpy()
    np.testing.assert_allclose(got, [3.8e-44, np.exp(-80.0), 80, 100, 1e30, 0], rtol=0.03)
    assert got[1] == np.float32(np.exp(-80.0)) or abs(got[1] / np.exp(-80.0) - 1) < 3e-7
    got = run(pg.ops.sigmoid(node_of(x))).numpy()
    assert list(got[2:]) == [1, 1, 1, 0]
    assert abs(got[1] / np.exp(-80.0) - 1) < 4e-7


def test_scale_to_another_dtype():
    layouts = ("contiguous", "in_place")
    params = {"s": 3.0, "dtype": "q8_0"}
    plain = {"s": 3.0}
    check_op(pg.ops.scale, [rand(6, 64)], oracle.scale, params=params, oracle_params=plain,
             dtypes=("f32", "q4_0"), layouts=layouts)  # fmt: skip


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_numbers_that_are_not_finite(bad):
    x = node_of([1.0])
    with pytest.raises(pg.ParameterError, match="scale: s must be in"):
        pg.ops.scale(x, bad)
    with pytest.raises(pg.ParameterError, match="bias"):
        pg.ops.scale(x, 1.0, bad)
    with pytest.raises(pg.ParameterError, match="leaky_relu: slope must be in"):
        pg.ops.leaky_relu(x, bad)


def test_clamp_bounds():
    x = np.float32([-np.inf, -2, -0.5, 0.5, 2, np.inf, np.nan])
    for low, high in ((-1, 1), (0.5, 0.5), (-np.inf, 0), (0, np.inf), (-np.inf, np.inf)):
        got = run(pg.ops.clamp(node_of(x), low, high)).numpy()
        np.testing.assert_array_equal(got, np.clip(x, np.float32(low), np.float32(high)))
    np.testing.assert_array_equal(run(pg.ops.clamp(node_of(x))).numpy(), x)
    with pytest.raises(pg.ParameterError, match=r"clamp: min 2 is above max 1: x is \(7,\) f32"):
        pg.ops.clamp(node_of(x), 2, 1)
    for low, high in ((np.nan, 1), (0, np.nan)):
        with pytest.raises(pg.ParameterError, match="must be in"):
            pg.ops.clamp(node_of(x), low, high)


@pytest.mark.parametrize("name", ALL)
def test_integers_refused(name):
    for dtype in ("i32", "i64"):
        with pytest.raises(pg.DTypeError, match=f"{name}: x must have a float dtype"):
            call(name, pg.Graph().input("x", (4,), dtype))
    with pytest.raises(pg.DTypeError, match="cannot be i32"):
        call(name, node_of([1.0]), dtype="i32")
    with pytest.raises(pg.ShapeError, match=f"{name}: the last axis has 33 elements"):
        call(name, node_of(values(name, 33)), dtype="q4_0")


def test_node_operators():
    x = rand(4, 9)
    n = node_of(x)
    exact = encode(x, "f32").numpy()
    np.testing.assert_array_equal(run(abs(n)).numpy(), np.abs(exact))
    np.testing.assert_array_equal(run(n**2).numpy(), exact * exact)
    np.testing.assert_array_equal(run(abs(n) ** 0.5).numpy(), np.sqrt(np.abs(exact)))
    assert (n**2.0).op == "sqr"
    assert (n ** np.float32(0.5)).op == "sqrt"
    for power in (5, 0, np.nan, 1e400, "2", None, n, [2]):
        with pytest.raises(pg.ParameterError, match="the powers of a node are"):
            n**power
