"""concat, repeat, pad: every axis and dtype, bytes kept, block borders."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, run, run_threads

import pyggml as pg
from oracles import join as oracle
from pyggml.dtypes import DTYPES

KEEP = {name: name for name in SCALARS + BLOCKS}
NAMES = tuple(kind.name for kind in DTYPES)


def stored(shape, name, seed=0):
    """Any bits of the dtype, NaN codes too."""
    kind = pg.dtypes.dtype(name)
    size = int(np.prod(shape[:-1])) * kind.row_bytes(shape[-1])
    raw = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return pg.Tensor.from_raw(raw.tobytes(), shape, name)


def blocks_of(t):
    """The bytes, one entry of the last axis a block."""
    kind = t.dtype
    return t.raw().reshape(*t.shape[:-1], t.shape[-1] // kind.block, kind.itemsize)


# ---- concat ----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2, -3])
def test_concat(axis):
    a, b = [4, 3, 32], [4, 3, 32]
    b[axis] = 64 if axis in (-1, 2) else 5
    check_op(
        pg.ops.concat,
        [rand(*a), rand(*b, seed=1)],
        oracle.concat,
        params={"axis": axis},
        dtypes=SCALARS + BLOCKS,
        result=KEEP,
        rows={0: 1, 1: 1} if axis in (0, -3) else {0: 0, 1: 0},
    )


@pytest.mark.parametrize("shapes", [((7,), (5,)), ((2, 3, 4, 5), (2, 3, 4, 6)), ((1,), (1,))])
def test_concat_of_other_ranks(shapes):
    arrays = [rand(*shapes[0]), rand(*shapes[1], seed=1)]
    check_op(pg.ops.concat, arrays, oracle.concat, dtypes=("f32", "f8_e4m3"))


@pytest.mark.parametrize("axis", [0, 1])
def test_concat_of_large_arrays(axis):
    arrays = [rand(300, 900), rand(300, 900, seed=1)]
    check_op(pg.ops.concat, arrays, oracle.concat, params={"axis": axis}, dtypes=("f32", "f16"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1])
def test_concat_keeps_bytes(name, axis):
    block = pg.dtypes.dtype(name).block
    other = [3, 2 * block]
    other[axis] *= 2
    a, b = stored((3, 2 * block), name), stored(tuple(other), name, 1)
    got = run_threads(pg.ops.concat(pg.Graph().const(a), b, axis))
    assert got.dtype is a.dtype
    assert np.array_equal(blocks_of(got), np.concatenate([blocks_of(a), blocks_of(b)], axis))


def test_concat_of_two_dtypes_is_f32_and_rounds_once():
    a, b = encode(rand(3, 32), "f8_e4m3"), encode(rand(2, 32, seed=1), "q8_0")
    g = pg.Graph()
    node = pg.ops.concat(g.const(a), g.const(b), 0)
    assert node.dtype is pg.f32
    expected = np.concatenate([decode(a), decode(b)])
    assert np.array_equal(run_threads(node).numpy(), expected.astype(np.float32))
    for dtype in ("f16", "f8_e4m3", "q8_0"):
        got = run_threads(pg.ops.concat(g.const(a), g.const(b), 0, dtype=dtype))
        wide = run(pg.ops.cast(g.const(np.float32(expected)), dtype))
        assert np.array_equal(got.raw(), wide.raw())


def test_concat_with_nothing():
    g = pg.Graph()
    x = rand(3, 4).astype(np.float32)
    empty = np.zeros((3, 0), np.float32)
    assert np.array_equal(run(pg.ops.concat(g.const(x), empty)).numpy(), x)
    assert np.array_equal(run(pg.ops.concat(g.const(empty), x)).numpy(), x)
    assert run(pg.ops.concat(g.const(empty), empty, 0)).shape == (6, 0)


def test_concat_refused():
    g = pg.Graph()
    x = g.input("x", (2, 3, 8))
    for axis in (3, -4, 2**70):
        with pytest.raises(pg.ShapeError, match="concat: axis"):
            pg.ops.concat(x, x, axis)
    with pytest.raises(pg.ParameterError, match="not an integer"):
        pg.ops.concat(x, x, 0.5)
    for shape in ((2, 4, 8), (3, 8), (1, 3, 8)):
        with pytest.raises(pg.ShapeError, match="concat: a and b"):
            pg.ops.concat(x, np.zeros(shape, np.float32))
    with pytest.raises(pg.ShapeError, match="concat: axis"):
        pg.ops.concat(g.input("s", ()), g.input("t", ()))
    i32, i64 = g.input("i", (2,), "i32"), g.input("j", (2,), "i64")
    for a, b in ((i32, i64), (i32, g.input("f", (2,))), (g.input("h", (2,)), i64)):
        with pytest.raises(pg.DTypeError, match="of one dtype or both be floats"):
            pg.ops.concat(a, b)
    with pytest.raises(pg.DTypeError):
        pg.ops.concat(i32, i32, dtype="f32")
    with pytest.raises(pg.DTypeError, match="cannot be i32"):
        pg.ops.concat(x, x, dtype="i32")
    with pytest.raises(pg.ShapeError, match="inside a block of q8_0"):
        pg.ops.concat(g.input("u", (2, 5)), g.input("v", (2, 27)), dtype="q8_0")
    wide = g.input("w", (2**59, 2))
    with pytest.raises(pg.ShapeError):
        pg.ops.concat(wide, wide, 0)


# ---- repeat ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((3, 32), (6, 64)),
        ((1, 32), (5, 32)),
        ((3, 1), (3, 40)),
        ((1, 1), (7, 33)),
        ((2, 3, 32), (2, 9, 96)),
        ((3, 32), (4, 6, 32)),
        ((5,), (2, 3, 2, 10)),
        ((2, 1, 3, 5), (4, 6, 3, 10)),
        ((3, 32), (3, 32)),
    ],
)
def test_repeat(shape, to):
    check_op(
        pg.ops.repeat,
        [rand(*shape)],
        oracle.repeat,
        params={"shape": to},
        dtypes=SCALARS + (BLOCKS if shape[-1] == 32 else ()),
        result=KEEP,
        rows={},
    )


@pytest.mark.parametrize("to", [(600, 900), (1800, 300), (2, 600, 300)])
def test_repeat_of_large_arrays(to):
    params = {"shape": to}
    arrays = [rand(600, 300)]
    check_op(pg.ops.repeat, arrays, oracle.repeat, params=params, dtypes=("f32",), rows={})
    check_op(pg.ops.repeat, [rand(1)], oracle.repeat, params=params, dtypes=("f16",), rows={})


@pytest.mark.parametrize("name", NAMES)
def test_repeat_keeps_bytes(name):
    block = pg.dtypes.dtype(name).block
    x = stored((2, 3 * block), name)
    got = run_threads(pg.ops.repeat(pg.Graph().const(x), (6, 6 * block)))
    assert got.dtype is x.dtype
    assert np.array_equal(blocks_of(got), np.tile(blocks_of(x), (3, 2, 1)))


def test_repeat_none_and_of_nothing():
    g = pg.Graph()
    assert run(pg.ops.repeat(g.const(np.ones((2, 3), np.float32)), (0, 3))).shape == (0, 3)
    assert run(pg.ops.repeat(g.const(np.ones((2, 0), np.float32)), (4, 0))).shape == (4, 0)
    assert run(pg.ops.repeat(g.const(np.float32(3)), (2, 2))).numpy().tolist() == [[3, 3]] * 2
    assert run(pg.ops.repeat(g.const(np.float32(3)), ())).numpy() == 3


def test_repeat_refused():
    g = pg.Graph()
    x = g.input("x", (2, 3))
    for shape in ((3, 3), (2, 4), (3,), (), (2, -3), (1, 3)):
        with pytest.raises(pg.ShapeError, match="repeat: "):
            pg.ops.repeat(x, shape)
    with pytest.raises(pg.ShapeError):
        pg.ops.repeat(x, (1, 1, 1, 2, 3))
    with pytest.raises(pg.ShapeError, match="whole multiple"):
        pg.ops.repeat(g.input("e", (0, 3)), (2, 3))
    with pytest.raises(pg.ShapeError):
        pg.ops.repeat(x, (2**40, 3 * 2**40))
    with pytest.raises(pg.ParameterError, match="not an integer"):
        pg.ops.repeat(x, (2, 3.0))


# ---- pad -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "after", "before"),
    [
        ((3, 5), (2, 3), None),
        ((3, 5), (0, 0), (2, 1)),
        ((3, 5), (1, 2), (3, 4)),
        ((2, 3, 4, 5), (1, 2, 3, 4), (4, 3, 2, 1)),
        ((7,), (3,), (2,)),
        ((3, 5), (0, 0), None),
        ((2, 5000), (1, 2100), (1, 2050)),
    ],
)
def test_pad(shape, after, before):
    params = {"after": after, "before": before}
    check_op(pg.ops.pad, [rand(*shape)], oracle.pad, params=params, result=KEEP)


def test_pad_of_blocks():
    params = {"after": (1, 64), "before": (2, 32)}
    check_op(pg.ops.pad, [rand(3, 64)], oracle.pad, params=params, dtypes=BLOCKS, result=KEEP)


@pytest.mark.parametrize("name", NAMES)
def test_pad_keeps_bytes_and_adds_zeros(name):
    block = pg.dtypes.dtype(name).block
    x = stored((2, 2 * block), name)
    got = run_threads(pg.ops.pad(pg.Graph().const(x), (1, block), (2, 3 * block)))
    assert got.dtype is x.dtype
    assert np.array_equal(blocks_of(got), np.pad(blocks_of(x), ((2, 1), (3, 1), (0, 0))))
    nothing = pg.Tensor.from_raw(bytes(got.dtype.row_bytes(block)), (block,), name)
    assert (nothing.numpy() == 0).all() if not nothing.dtype.is_block else True
    assert (nothing.dequantize() == 0).all() if nothing.dtype.is_float else True


def test_pad_of_nothing():
    x = pg.Graph().const(np.ones((0, 3), np.float32))
    assert run(pg.ops.pad(x, (2, 0))).numpy().tolist() == [[0, 0, 0]] * 2
    assert run(pg.ops.pad(x, (0, 2))).shape == (0, 5)
    assert run(pg.ops.pad(pg.Graph().const(np.float32(2)), ())).numpy() == 2


def test_pad_refused():
    g = pg.Graph()
    x = g.input("x", (2, 32))
    for after, before in (((1,), None), ((1, 2, 3), None), ((1, 2), (1,)), ((), ())):
        with pytest.raises(pg.ShapeError, match=r"pad: .* need one number for each of the 2 axes"):
            pg.ops.pad(x, after, before)
    for after, before in (((-1, 0), None), ((0, 0), (0, -1))):
        with pytest.raises(pg.ParameterError, match="must not be negative"):
            pg.ops.pad(x, after, before)
    q = g.input("q", (2, 32), "q8_0")
    with pytest.raises(pg.ShapeError, match="multiple of its block"):
        pg.ops.pad(q, (0, 5))
    with pytest.raises(pg.ShapeError, match="inside a block of q8_0"):
        pg.ops.pad(q, (0, 31), (0, 1))
    for after in ((0, 2**62), (2**62, 2**40)):
        with pytest.raises(pg.ShapeError):
            pg.ops.pad(x, after)
    with pytest.raises(pg.ShapeError, match="too long"):
        pg.ops.pad(x, (0, 2**63 - 1))
    with pytest.raises(pg.ParameterError):
        pg.ops.pad(x, (0, 2**63))
