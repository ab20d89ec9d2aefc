"""Gated units: swiglu, geglu, reglu and their kin, of two operands and of one's halves."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, encode, rand, run

import pyggml as pg
from oracles import elementwise as oracle

KEEP = {name: name for name in SCALARS}
TO_F32 = dict.fromkeys(BLOCKS, "f32")
NAMES = ("swiglu", "geglu", "geglu_erf", "geglu_quick", "reglu")

every_unit = pytest.mark.parametrize("name", NAMES)


def ref_of(name, halves=False):
    return oracle.swiglu_split if halves and name == "swiglu" else getattr(oracle, name)


def node_of(x, dtype="f32"):
    return pg.Graph().const(encode(np.asarray(x), dtype))


@every_unit
def test_two_operands(name):
    fn, ref = getattr(pg.ops, name), ref_of(name)
    check_op(fn, [rand(5, 37, seed=1), rand(5, 37, seed=2)], ref, result=KEEP)
    big = [rand(90, 401, seed=1), rand(90, 401, seed=2)]
    layouts = ("contiguous", "strided", "in_place")
    check_op(fn, big, ref, dtypes=("f32", "bf16"), layouts=layouts)
    blocks = [rand(3, 64, seed=1), rand(3, 64, seed=2)]
    check_op(fn, blocks, ref, dtypes=BLOCKS, result=TO_F32)


@every_unit
def test_halves(name):
    fn, ref = getattr(pg.ops, name), ref_of(name, halves=True)
    check_op(fn, [rand(5, 74)], ref, result=KEEP)
    check_op(fn, [rand(5, 128)], ref, dtypes=BLOCKS, result=TO_F32)
    check_op(fn, [rand(70, 1602)], ref, dtypes=("f32",), layouts=("contiguous", "in_place"))


@every_unit
def test_halves_and_operands_give_the_same_bits(name):
    x = rand(7, 80).astype(np.float32)
    fn = getattr(pg.ops, name)
    n = node_of(x)
    assert np.array_equal(run(fn(n)).raw(), run(fn(n[:, :40], n[:, 40:])).raw())
    # the gate comes first
    assert not np.array_equal(run(fn(n)).raw(), run(fn(n[:, 40:], n[:, :40])).raw())


@every_unit
def test_in_the_memory_of_either_operand(name):
    gate, up = (rand(6, 50, seed=s).astype(np.float32) for s in (1, 2))
    expected = ref_of(name)(gate, up)
    for first, second in ((True, False), (False, True), (True, True)):
        g = pg.Graph()
        a, b = g.input("a", gate.shape), g.input("b", up.shape)
        node = getattr(pg.ops, name)(
            pg.ops.cont(a) if first else a, pg.ops.cont(b) if second else b
        )
        got = g.compile(node, threads=2)(a=gate, b=up)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@every_unit
def test_the_ends(name):
    gate = np.float32([-np.inf, -3e38, -200, -0.0, 0, 200, 3e38, np.inf, np.nan, 1.0])
    up = np.float32([2, 2, 2, 2, 2, 2, 0.5, 2, 2, np.nan])
    got = run(getattr(pg.ops, name)(node_of(gate), up)).numpy()
    assert list(got[:8]) == [0, 0, 0, 0, 0, 400, np.float32(1.5e38), np.inf]
    assert np.isnan(got[8:]).all()


@every_unit
def test_refused(name):
    fn, g = getattr(pg.ops, name), pg.Graph()
    with pytest.raises(pg.ShapeError, match=f"{name}: gate and up must have one shape"):
        fn(g.input("a", (2, 4)), g.input("b", (4,)))
    for i, shape in enumerate(((), (3,), (2, 5))):
        with pytest.raises(pg.ShapeError, match="multiple of 2"):
            fn(g.input(f"h{i}", shape))
    with pytest.raises(pg.ShapeError, match="multiple of 64"):
        fn(g.input("q", (2, 96), "q8_0"))
    with pytest.raises(pg.DTypeError, match="gate must have a float dtype"):
        fn(g.input("i", (4,), "i32"))
    with pytest.raises(pg.DTypeError, match="up must have a float dtype"):
        fn(g.input("x", (4,)), g.input("j", (4,), "i64"))
    with pytest.raises(pg.DTypeError, match="cannot be i64"):
        fn(g.input("y", (4,)), dtype="i64")
    assert fn(g.input("z", (65536, 65536), "f8_e4m3")).shape == (65536, 32768)
