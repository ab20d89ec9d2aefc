"""acc and set: regions of every kind, dtypes, order of writes, refusals."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, decode, encode, guarded, rand, run_threads

import pyggml as pg
from oracles import copy as oracle_copy
from oracles import region as oracle

FLOATS = SCALARS + BLOCKS
OPS = {"acc": pg.ops.acc, "set": pg.ops.set}
every_op = pytest.mark.parametrize("name", OPS)

# shape of dst, shape of x, start, step
REGIONS = [
    ((6, 7), (6, 7), None, None),
    ((6, 7), (2, 3), (1, 2), None),
    ((6, 7), (2, 3), (1, 2), (3, 2)),
    ((6, 7), (6, 1), (0, 6), (1, 5)),
    ((6, 7), (1, 7), (5, 0), None),
    ((6, 7), (3, 4), None, (2, 2)),
    ((9,), (4,), (2,), (2,)),
    ((2, 3, 4, 5), (1, 2, 2, 3), (1, 0, 1, 0), (1, 2, 2, 2)),
    ((6, 7), (0, 7), (6, 0), None),
    ((6, 7), (2, 0), (1, 7), (4, 1)),
    ((), (), None, None),
    ((40, 5000), (13, 2100), (1, 40), (3, 2)),
]


def expected(name, dst, x, dtype, start, step):
    """What dst, as stored, holds afterwards."""
    seen = decode(dst)
    if name == "set":
        return oracle.set(
            seen, oracle_copy.cast(x, dtype).reshape(x.shape) if x.size else x, start, step
        )
    before, after = seen, oracle.acc(seen, x, start, step)
    touched = oracle.set(np.zeros(seen.shape, bool), np.ones(x.shape, bool), start, step)
    stored = oracle_copy.cast(after.astype(np.float32), dtype).reshape(after.shape)
    return np.where(touched, stored, before)


def write(name, target, x, start=None, step=None, threads=1):
    g = pg.Graph()
    node = OPS[name](target, g.const(x), start=start, step=step)
    assert node.shape == target.shape
    assert node.dtype is target.dtype
    return g.compile(node, threads=threads)()


@every_op
@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize(("shape", "x_shape", "start", "step"), REGIONS)
def test_regions(name, dtype, shape, x_shape, start, step):
    before = encode(rand(*shape, seed=1), dtype)
    x = encode(rand(*x_shape, seed=2), "f32")
    wanted = expected(name, before, decode(x).astype(np.float32), dtype, start, step)
    for threads in (1, 2, 5):
        target = guarded(before)
        got = write(name, target, x, start, step, threads)
        np.testing.assert_array_equal(decode(target), wanted)
        np.testing.assert_array_equal(np.asarray(got, np.float64), wanted)


@every_op
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("src", FLOATS)
def test_every_pair(name, src, dtype):
    before, x = encode(rand(5, 96, seed=1), dtype), encode(rand(2, 32, seed=2), src)
    start, step = (1, 64), (3, 1)
    target = guarded(before)
    write(name, target, x, start, step, 2)
    if name == "set" and src == dtype:
        wanted = oracle.set(decode(before), decode(x), start, step)
    elif dtype in BLOCKS:  # the other blocks keep their bytes
        part = decode(x)
        if name == "acc":
            part = part + decode(before)[1::3, 64:]
        part = oracle_copy.cast(part.astype(np.float32), dtype)
        wanted = oracle.set(decode(before), part, start, step)
    else:
        wanted = expected(name, before, decode(x).astype(np.float32), dtype, start, step)
    np.testing.assert_array_equal(decode(target), wanted)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_set_of_integers(dtype):
    target = pg.zeros((4, 5), dtype)
    write("set", target, pg.tensor(np.array([[1, -2]], target.numpy().dtype)), (2, 1), (1, 2))
    wanted = np.zeros((4, 5))
    wanted[2, [1, 3]] = [1, -2]
    np.testing.assert_array_equal(target.numpy(), wanted)


@every_op
def test_strided_operands(name):
    base = encode(rand(8, 9, seed=1), "f16")
    x = rand(6, 4, seed=2).astype(np.float32)
    target = guarded(base)
    g = pg.Graph()
    view = g.const(target)[1::2].T
    node = OPS[name](view, g.const(x)[::2, 1:3], start=(2, 1), step=(3, 1))
    g.compile(node, threads=5)()
    values = decode(base)
    part = getattr(oracle, name)(values[1::2].T, x[::2, 1:3], (2, 1), (3, 1))
    values[1::2] = oracle_copy.cast(part.astype(np.float32), "f16").T
    np.testing.assert_array_equal(decode(target), values)


def test_a_node_as_dst_and_writes_in_build_order():
    x = rand(6, 8).astype(np.float32)
    g = pg.Graph()
    base = pg.ops.cont(g.input("x", x.shape))
    one = np.ones((2, 8), np.float32)
    first = pg.ops.set(base, one, start=(1, 0))
    second = pg.ops.acc(first, one, start=(2, 0), step=(2, 1))
    third = pg.ops.acc(second, one, start=(0, 0), step=(2, 1))
    got = run_threads(third, {"x": encode(x, "f32")}).numpy()
    wanted = oracle.set(x, one, (1, 0), (1, 1))
    for start in ((2, 0), (0, 0)):
        wanted = oracle.acc(wanted, one, start, (2, 1)).astype(np.float32)
    np.testing.assert_array_equal(got, wanted)


@every_op
def test_a_write_into_a_tensor_is_kept_without_an_output(name):
    target = pg.zeros((3, 3))
    g = pg.Graph()
    OPS[name](g.const(target), np.ones((1, 1), np.float32), start=(1, 1))
    g.compile(g.input("x", (1,)) * 2.0)(x=np.ones(1, np.float32))
    assert target.numpy().sum() == target.numpy()[1, 1] == 1


def test_acc_rounds_once_and_saturates():
    target = pg.Tensor.from_raw(encode([1.0, 448.0, -448.0, np.nan], "f8_e4m3").raw().copy(), (4,),
                                "f8_e4m3")  # fmt: skip
    write("acc", target, pg.tensor(np.float32([0.0625 + 2**-12, 100, -1000, 1])))
    assert list(decode(target)[:3]) == [1.125, 448, -448]
    assert np.isnan(decode(target)[3])


@every_op
def test_overlapping_memory_is_refused(name):
    target = pg.tensor(np.arange(10000, dtype=np.float32))
    g = pg.Graph()
    node = g.const(target)
    with pytest.raises(pg.GraphError, match=f"{name}: x lies in the memory of dst"):
        OPS[name](node, node[1:5001], start=(3,), step=(1,))


@every_op
@pytest.mark.parametrize(
    ("x", "start", "step", "message"),
    [
        ((7, 7), None, None, "axis 0: x from 0 on in steps of 1 leaves dst"),
        ((2, 3), (5, 0), None, "axis 0: x from 5"),
        ((2, 3), (0, -1), None, "axis 1: x from -1"),
        ((2, 3), (0, 0), (6, 1), "axis 0: x from 0 on in steps of 6"),
        ((2, 3), (0, 0), (2**62, 1), "axis 0"),
        ((2, 3), (2**63 - 1, 0), None, "axis 0"),
        ((2, 3), None, (1, 0), "axis 1: the step must be at least 1, not 0"),
        ((2, 3), None, (-1, 1), "axis 0: the step must be at least 1, not -1"),
        ((0, 3), (7, 0), None, "axis 0: x from 7"),
        ((3,), None, None, "x must have as many axes as dst"),
        ((1, 2, 3), None, None, "x must have as many axes as dst"),
        ((2, 3), (1,), None, "start has 1 numbers, dst has 2 axes"),
        ((2, 3), None, (1, 1, 1), "step has 3 numbers"),
    ],
)
def test_regions_refused(name, x, start, step, message):
    g = pg.Graph()
    with pytest.raises(pg.ShapeError, match=f"{name}: {message}"):
        OPS[name](pg.zeros((6, 7)), g.input("x", x), start=start, step=step)


@every_op
def test_other_refusals(name):
    g, op = pg.Graph(), OPS[name]
    x = g.input("x", (2, 3))
    locked = np.zeros((6, 7), np.float32)
    locked.flags.writeable = False
    with pytest.raises(pg.ReadOnlyError, match=f"{name}: dst is read-only"):
        op(locked, x)
    wide = pg.zeros((4, 96), "q8_0")
    for shape, start, step in (((2, 32), (0, 16), None), ((2, 32), (0, 0), (1, 2)),
                               ((2, 16), None, None)):  # fmt: skip
        with pytest.raises(pg.ShapeError, match="q8_0 is written only in blocks of 32"):
            op(wide, g.input(f"y{start}{step}{shape}", shape), start=start, step=step)
    with pytest.raises(pg.DTypeError, match=name):
        op(pg.zeros((6, 7), "i32"), x)
    for bad in (1.5, "ab", 3, (1, None), ("a", "b"), (1.0, 2.0)):
        with pytest.raises(pg.PyggmlError):
            op(pg.zeros((6, 7)), x, start=bad)
    with pytest.raises(pg.DTypeError, match="must have a float dtype"):
        pg.ops.acc(pg.zeros((6, 7)), g.input("i", (2, 3), "i32"))
