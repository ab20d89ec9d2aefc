"""Ops that choose rows or matrices by index: add_id, mul_mat_id."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, guarded, rand, run

import pyggml as pg
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
