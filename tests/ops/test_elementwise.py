"""add sub mul div, add1."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, rounded, run, run_threads

import pyggml as pg
from oracles import elementwise as oracle

KEEP = {name: name for name in SCALARS}
TO_F32 = dict.fromkeys(BLOCKS, "f32")
BINARY = ("add", "sub", "mul", "div")


def node_of(values, dtype="f32", g=None):
    g = pg.Graph() if g is None else g
    return g.const(encode(np.asarray(values), dtype))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    arrays = [rand(5, 7, seed=1), rand(5, 7, seed=2) + 3.0]
    check_op(getattr(pg.ops, name), arrays, getattr(oracle, name), result=KEEP)


@pytest.mark.parametrize("name", BINARY)
def test_binary_of_blocks(name):
    arrays = [rand(3, 96, seed=1), rand(3, 96, seed=2) + 3.0]
    fn, ref = getattr(pg.ops, name), getattr(oracle, name)
    check_op(fn, arrays, ref, dtypes=BLOCKS, result=TO_F32)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), ()),
        ((), (3,)),
        ((4, 3), ()),
        ((4, 3), (3,)),
        ((3,), (4, 3)),
        ((4, 1), (4, 3)),
        ((4, 1), (1, 3)),
        ((2, 1, 4, 1), (3, 1, 5)),
        ((2, 3, 4, 5), (4, 5)),
        ((2, 3, 1, 5), (2, 1, 4, 1)),
        ((1, 1), (5,)),
        ((0, 3), (3,)),
        ((4, 1), (4, 0)),
        ((1, 3), (0, 1)),
        ((3, 5000), (3, 1)),
        ((1, 4100), (3, 1)),
        ((2, 9000, 1), (9000, 3)),
    ],
)
def test_broadcast_both_ways(a, b):
    arrays = [rand(*a, seed=1), rand(*b, seed=2)]
    layouts = ("contiguous", "strided", "permuted", "in_place", "const")
    for left, right in (arrays, arrays[::-1]):
        check_op(pg.ops.sub, [left, right], oracle.sub, layouts=layouts, dtypes=("f32", "f8_e4m3"))


@pytest.mark.parametrize("name", BINARY)
def test_f32_arithmetic_is_numpys_bit_for_bit(name):
    a = rand(300, 601, seed=3).astype(np.float32)  # large enough for several tasks
    b = rand(300, 601, seed=4).astype(np.float32)
    ufunc = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name]
    got = run_threads(getattr(pg.ops, name)(node_of(a), b)).numpy()
    assert np.array_equal(got.view(np.uint32), ufunc(a, b).view(np.uint32))


def test_many_tasks_of_a_strided_narrow_format():
    check_op(
        pg.ops.mul,
        [rand(200, 901, seed=5), rand(901, seed=6)],
        oracle.mul,
        dtypes=("f8_e4m3",),
        layouts=("contiguous", "strided", "in_place"),
    )


def test_ieee_results():
    a = np.array([1, -1, 0, np.inf, np.nan, -0.0, 3e38], np.float32)
    b = np.array([0, 0, 0, np.inf, 1, 5, 3e38], np.float32)
    for name in BINARY:
        got = run(getattr(pg.ops, name)(node_of(a), b)).numpy()
        with np.errstate(all="ignore"):
            expected = getattr(oracle, name)(a, b).astype(np.float32)
        np.testing.assert_array_equal(got, expected)
        assert np.array_equal(np.signbit(got[5:]), np.signbit(expected[5:]))


def test_one_rounding_of_a_narrow_result():
    # 1 + 2^-4 is a tie of F8_E4M3 and 2^-12 decides it; rounding through F16 first would lose that
    a, b = np.float32([1 + 2.0**-4, 17]), np.float32([2.0**-12, 2.0**-12])
    got = run(pg.ops.add(node_of(a), b, dtype="f8_e4m3"))
    assert list(decode(got)) == [1.125, 18.0]


def test_sums_saturate_in_f8_and_overflow_in_f16():
    for dtype, x, expected in (("f8_e4m3", 448.0, 448.0), ("f16", 65504.0, np.inf)):
        n = node_of([x, -x], dtype)
        assert list(decode(run(pg.ops.add(n, n)))) == [expected, -expected]


def test_result_dtype_rule():
    g = pg.Graph()
    f32, f16 = g.input("a", (32,), "f32"), g.input("b", (32,), "f16")
    f8, q8 = g.input("c", (32,), "f8_e4m3"), g.input("d", (32,), "q8_0")
    assert pg.ops.add(f16, f16).dtype is pg.f16
    assert pg.ops.add(f8, f8).dtype is pg.f8_e4m3
    assert pg.ops.add(f16, f8).dtype is pg.f32
    assert pg.ops.add(f32, f16).dtype is pg.f32
    assert pg.ops.add(q8, q8).dtype is pg.f32
    assert pg.ops.add(f32, f32, dtype="bf16").dtype is pg.bf16
    assert pg.ops.mul(f32, f32, dtype="q8_0").dtype is pg.q8_0
    assert pg.ops.silu(q8).dtype is pg.f32
    assert pg.ops.swiglu(f16, f32).dtype is pg.f32


def test_one_operand_twice():
    x = rand(4, 33)
    g = pg.Graph()
    n = pg.ops.cont(g.input("x", x.shape, "f32"))
    got = run_threads(pg.ops.mul(n, n), {"x": encode(x, "f32")})
    np.testing.assert_allclose(decode(got), rounded(x, "f32") ** 2, rtol=1e-6)


@pytest.mark.parametrize("b", [(), (1,), (1, 1, 1)])
def test_add1(b):
    arrays = [rand(6, 50, seed=1), rand(*b, seed=2)]
    layouts = ("contiguous", "strided", "permuted", "in_place", "const")
    check_op(pg.ops.add1, arrays, oracle.add1, result=KEEP, layouts=layouts)
    check_op(pg.ops.add1, arrays, oracle.add1, vary=[1], layouts=("contiguous",))
    blocks = [rand(6, 64, seed=1), arrays[1]]
    check_op(pg.ops.add1, blocks, oracle.add1, dtypes=BLOCKS, vary=[0], result=TO_F32)


def test_add1_of_one_row_none_and_a_scalar():
    for shape in ((1, 7), (0, 7), (7,), ()):
        x = rand(*shape)
        check_op(pg.ops.add1, [x, rand(1)], oracle.add1, layouts=("contiguous", "in_place"))
    got = run(pg.ops.add1(node_of([1, np.nan, np.inf, -np.inf]), np.float32([np.inf]))).numpy()
    np.testing.assert_array_equal(got, [np.inf, np.nan, np.inf, np.nan])
    assert pg.ops.add1(*shape_of((4, 5), (1, 1, 1, 1))).shape == (4, 5)


def shape_of(a, b=None, dtype="f32"):
    g = pg.Graph()
    return g.input("a", a, dtype), None if b is None else g.input("b", b, dtype)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("a", "b"), [((3,), (4,)), ((2, 3), (2,)), ((2, 0), (2, 3))])
def test_shapes_that_do_not_broadcast(name, a, b):
    x, y = shape_of(a, b)
    with pytest.raises(pg.ShapeError, match=rf"{name}: shapes do not broadcast: a 'a' is \("):
        getattr(pg.ops, name)(x, y)


def test_shapes_refused():
    for shape in ((2,), (0,), (1, 2)):
        with pytest.raises(pg.ShapeError, match="add1: b must have one element: a 'a' is"):
            pg.ops.add1(*shape_of((3, 4), shape))
    with pytest.raises(pg.ShapeError, match="scale: the last axis has 33 elements"):
        pg.ops.scale(shape_of((33,))[0], 1.0, dtype="q4_0")


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_integers_refused(dtype):
    x, y = shape_of((4,), (4,), dtype)
    calls = [lambda: pg.ops.add(x, y), lambda: pg.ops.scale(x, 2.0), lambda: pg.ops.silu(x)]
    calls += [lambda: pg.ops.swiglu(x, y), lambda: pg.ops.mul(x, 2.0)]
    for call in calls:
        with pytest.raises(pg.DTypeError, match="must have a float dtype"):
            call()
    with pytest.raises(pg.DTypeError, match="cannot be i32"):
        pg.ops.silu(shape_of((4,))[0], dtype="i32")


def test_a_result_past_2_to_the_62_bytes():
    x, y = shape_of((1 << 31, 1), (1, 1 << 31))
    with pytest.raises(pg.ShapeError, match=r"add: the tensor would pass 2\^62 bytes: a 'a'"):
        pg.ops.add(x, y)


def test_shapes_past_2_to_the_31_elements():
    x, y = shape_of((65536, 65536), (65536,), "f8_e4m3")
    assert pg.ops.add(x, y).shape == (65536, 65536)
    assert pg.ops.silu(x).shape == (65536, 65536)
    assert pg.ops.swiglu(x).shape == (65536, 32768)
