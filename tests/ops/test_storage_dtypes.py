"""F64, I8 and I16: held, moved and cast with one rounding, refused by arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from ops.check import decode, run_threads

import pyggml as pg
from oracles import copy as oracle_copy

NARROW = ("f16", "bf16", "f8_e4m3")
INTEGERS = ("i8", "i16", "i32", "i64")
STORED = ("f64", "i8", "i16")
LAYOUTS = ("plain", "strided", "permuted")


def placed(g: pg.Graph, array: np.ndarray, layout: str) -> pg.Node:
    """The array (2 axes) as a node of its own dtype in a layout."""
    if layout == "strided":
        big = np.full([2 * n + 1 for n in array.shape], 77, array.dtype)
        big[1::2, 1::2] = array
        return g.const(pg.tensor(big))[1::2, 1::2]
    if layout == "permuted":
        return pg.ops.transpose(g.const(pg.tensor(np.ascontiguousarray(array.T))))
    return g.const(pg.tensor(np.ascontiguousarray(array)))


def cast(array: np.ndarray, dtype: str, layout: str = "plain") -> pg.Tensor:
    """The array cast by a graph, with 1, 2 and 5 threads."""
    g = pg.Graph()
    return run_threads(pg.ops.cast(placed(g, array, layout), dtype))


def doubles() -> np.ndarray:
    """(rows, 64) float64: every size, ties of all narrow formats and their neighbours, limits."""
    rng = np.random.default_rng(0)
    sizes = rng.standard_normal(4096) * 10.0 ** rng.uniform(-330, 307, 4096)
    near = rng.standard_normal(4096) * 10.0 ** rng.uniform(-12, 6, 4096)
    kinds = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)
    ties = []
    for kind in kinds:  # halfway between neighbours, exact in float32
        values = np.clip(near[:400], -400, 400).astype(kind)
        up = np.nextafter(values, kind(440)).astype(np.float64)
        values = values.astype(np.float64)
        ties.append((values + up) / 2)
    ties = np.concatenate(ties)
    beside = np.concatenate([np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])
    limits = [0.0, np.inf, np.nan, 5e-324, 2.0**-150, 2.0**-149, 1.5 * 2.0**-149, 65504, 65519.99]
    limits += [65520, 448, 464, 465, 3.4028234663852886e38, 3.4028235677973366e38, 3.5e38, 1e308]
    limits += [2.0**-25, np.nextafter(2.0**-25, 1), 2.0**-24, 2.0**-10, np.nextafter(2.0**-10, 1)]
    limits += [2.0**-133, 2.0**-134, np.nextafter(2.0**-134, 1), 1 + 2.0**-11 + 2.0**-40]
    limits = np.concatenate([limits, -np.array(limits)])
    with np.errstate(over="ignore"):
        x = np.concatenate([sizes, near, ties, beside, limits])
    return np.resize(x, (len(x) // 64 + 1, 64))


@pytest.mark.parametrize("dtype", ["f32", *NARROW])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_f64_rounds_once(dtype, layout) -> None:
    x = doubles()
    expected = oracle_copy.encode(x, dtype)
    got = cast(x, dtype, layout)
    assert np.array_equal(got.raw(), expected.reshape(-1))
    assert np.array_equal(pg.tensor(x, dtype=dtype).raw(), got.raw())


@pytest.mark.parametrize("dtype", ["f32", *NARROW, "q8_0", "q4_k", "mxfp4", "iq4_xs"])
def test_f64_holds_every_float(dtype) -> None:
    x = np.random.default_rng(1).standard_normal((5, 512)).astype(np.float32)
    raw = oracle_copy.encode(x, dtype)
    g = pg.Graph()
    node = pg.ops.cast(g.const(pg.Tensor.from_raw(raw, x.shape, dtype)), "f64")
    values = run_threads(node)
    assert values.numpy().dtype == np.float64
    assert np.array_equal(values.numpy(), oracle_copy.decode(raw, dtype).reshape(x.shape))
    if dtype != "iq4_xs":
        back = cast(values.numpy(), dtype)
        same = np.abs(decode(back) - values.numpy()).max()
        assert same == 0 if dtype in ("f32", *NARROW) else same < 0.2
        # what float32 holds is encoded as float32 is
        assert np.array_equal(cast(x.astype(np.float64), dtype).raw(), raw.reshape(-1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers(source, layout) -> None:
    kind = pg.dtype(source).numpy
    info = np.iinfo(kind)
    rng = np.random.default_rng(2)
    x = rng.integers(info.min, info.max, (9, 33), dtype=kind, endpoint=True)
    x[0, :5] = info.min, info.max, -1, 0, 1
    for to in INTEGERS:
        if info.bits <= pg.dtype(to).itemsize * 8:
            got = cast(x, to, layout).numpy()
            assert got.dtype == pg.dtype(to).numpy
            assert np.array_equal(got, x)
        else:
            with pytest.raises(pg.DTypeError, match=f"no cast from {source} to {to}"):
                cast(x, to, layout)
    assert np.array_equal(cast(x, "f64", layout).numpy(), x.astype(np.float64))
    assert np.array_equal(cast(x, "f32", layout).numpy(), x.astype(np.float32))
    if info.bits <= 32:  # exact in float64, from which the oracle rounds once
        for to in NARROW:
            expected = oracle_copy.encode(x.astype(np.float64), to)
            assert np.array_equal(cast(x, to, layout).raw(), expected.reshape(-1))


def test_floats_to_integers_are_refused() -> None:
    for to in INTEGERS:
        for x in (np.zeros((2, 2)), np.zeros((2, 2), np.float32)):
            with pytest.raises(pg.DTypeError, match="values could be lost"):
                cast(x, to)


@pytest.mark.parametrize("dtype", STORED)
def test_bytes_are_moved(dtype) -> None:
    kind = pg.dtype(dtype).numpy
    x = np.arange(-30, 30, dtype=kind).reshape(6, 10)
    g = pg.Graph()
    node = g.const(pg.tensor(x))
    assert np.array_equal(run_threads(pg.ops.cont(node.T[::3])).numpy(), x.T[::3])
    assert np.array_equal(run_threads(pg.ops.concat(node, node, axis=1)).numpy(), np.hstack([x, x]))
    assert np.array_equal(run_threads(pg.ops.repeat(node, (12, 10))).numpy(), np.tile(x, (2, 1)))
    rows = pg.ops.get_rows(node, [5, 0, 5])
    assert rows.dtype is pg.dtype(dtype)
    assert np.array_equal(run_threads(rows).numpy(), x[[5, 0, 5]])
    target = pg.zeros((6, 10), dtype)
    g.compile(pg.ops.cpy(node, g.const(target)))()
    assert np.array_equal(target.numpy(), x)
    y = g.input("y", (2, 2), dtype)
    assert np.array_equal(g.compile(pg.ops.cont(y))(y=[[1, 2], [3, 4]]), [[1, 2], [3, 4]])


def test_writes_convert_once() -> None:
    target = pg.zeros((3, 4), "f16")
    x = np.full((3, 4), 1 + 2.0**-11 + 2.0**-40)
    g = pg.Graph()
    g.compile(pg.ops.cpy(x, g.const(target)))()
    assert (target.raw().view(np.uint16) == 0x3C01).all()
    wide = pg.zeros((3, 4), "f64")
    g = pg.Graph()
    g.compile(pg.ops.set(g.const(wide), np.arange(3, dtype=np.int16).reshape(1, 3), start=(1, 1)))()
    assert wide.numpy()[1].tolist() == [0, 0, 1, 2]
    with pytest.raises(pg.DTypeError, match="no cast from f32 to i8"):
        pg.ops.cpy(np.zeros((2, 2), np.float32), pg.Graph().const(pg.zeros((2, 2), "i8")))


@pytest.mark.parametrize("dtype", STORED)
def test_arithmetic_is_refused(dtype) -> None:
    g = pg.Graph()
    x, y = g.const(pg.zeros((4, 8), dtype)), g.const(pg.zeros((4, 8)))
    ids = g.const(pg.zeros((4,), dtype))
    for make in (
        lambda: x + x,
        lambda: y * x,
        lambda: pg.ops.scale(x, 2.0),
        lambda: pg.ops.silu(x),
        lambda: pg.ops.rms_norm(x),
        lambda: pg.ops.soft_max(x),
        lambda: pg.ops.mul_mat(x, y),
        lambda: pg.ops.mul_mat(y, x),
        lambda: pg.ops.sum_rows(x),
        lambda: pg.ops.argsort(x),
        lambda: pg.ops.acc(g.const(pg.zeros((4, 8), dtype)), y),
    ):
        with pytest.raises(pg.DTypeError, match=rf": \w+ is only stored as {dtype}; cast it first"):
            make()
    with pytest.raises(pg.DTypeError, match="ids must be i32 or i64"):
        pg.ops.get_rows(y, ids)
    with pytest.raises(pg.DTypeError, match=f"the result cannot be {dtype}"):
        pg.ops.add(y, y, dtype=dtype)
    with pytest.raises(pg.DTypeError, match="float"):
        pg.ops.concat(x, y)
