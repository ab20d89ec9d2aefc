"""Tensors: what is shared and what is copied (B10), conversions, lifetime (B11)."""

from __future__ import annotations

import gc
import mmap
import warnings

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg
from oracles import copy as oracle
from oracles import formats
from pyggml.dtypes import DTYPES

SCALARS = tuple(d.name for d in DTYPES if d.numpy is not None)
FLOATS = tuple(d.name for d in DTYPES if d.is_float and d.name in SCALARS and d is not pg.f32)


def array_of(dtype: str, *shape: int) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(pg.dtype(dtype).numpy)


# ---- sharing ----


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 1, 5), (), (2, 1, 3, 2)])
def test_shared(dtype, shape) -> None:
    a = array_of(dtype, *shape)
    t = pg.tensor(a, name="weights")
    assert (t.shape, t.dtype, t.name, t.ndim) == (shape, pg.dtype(dtype), "weights", len(shape))
    assert (t.size, t.nbytes) == (a.size, a.nbytes)
    assert t.numpy().shape == shape
    assert t.numpy().dtype == a.dtype
    assert np.shares_memory(t.numpy(), a)
    assert np.shares_memory(t.raw(), a)
    assert np.shares_memory(np.asarray(t), a)
    a[...] = a + a.dtype.type(1)
    assert t.numpy().tobytes() == a.tobytes()
    t.numpy()[...] = 0
    assert not a.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[:, ::-1],
        lambda a: a[1:, 1:],
        lambda a: a.astype(">f4"),
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (3, 6)),
    ],
)
def test_other_layouts_are_copied(make) -> None:
    a = make(np.arange(24, dtype=np.float32).reshape(4, 6))
    t = pg.tensor(a)
    assert np.array_equal(t.numpy(), a)
    assert t.shape == a.shape
    assert t.dtype is pg.f32
    assert not np.shares_memory(t.numpy(), a)
    assert t.writable
    assert t.numpy().dtype.isnative


def test_unaligned_is_copied() -> None:
    a = np.frombuffer(b"\0" + np.arange(5, dtype=np.float32).tobytes(), np.float32, 5, 1)
    assert not a.flags.aligned
    t = pg.tensor(a)
    assert np.array_equal(t.numpy(), np.arange(5))
    assert t.raw().ctypes.data % 4 == 0
    raw = pg.Tensor.from_raw(a.view(np.uint8), (5,), "f32")
    assert raw.raw().ctypes.data % 4 == 0
    assert np.array_equal(raw.numpy(), np.arange(5))
    g = pg.Graph()
    assert np.array_equal(g.compile(g.const(raw) * 2)(), np.arange(5) * 2)


def test_read_only_stays() -> None:
    a = np.arange(3, dtype=np.float32)
    a.flags.writeable = False
    t = pg.tensor(a)
    assert not t.writable
    assert np.shares_memory(t.raw(), a)
    assert not t.numpy().flags.writeable
    assert not pg.Tensor.from_raw(bytes(4), (1,), "f32").writable
    assert pg.Tensor.from_raw(bytearray(4), (1,), "f32").writable
    assert repr(t) == "<Tensor (3,) f32, 12 bytes, read-only>"


def test_empty_and_scalar() -> None:
    for shape in ((0,), (3, 0), (0, 3), (2, 0, 2, 1)):
        t = pg.tensor(np.zeros(shape, np.float16))
        assert t.shape == t.numpy().shape == shape
        assert t.nbytes == t.size == 0
        assert pg.tensor(np.zeros(shape), dtype="f8_e4m3").dequantize().shape == shape
    t = pg.tensor(np.float32(2.5))
    assert t.shape == ()
    assert t.numpy() == 2.5
    with pytest.raises(TypeError, match="len"):
        len(t)
    assert len(pg.zeros((4, 2))) == 4


def test_subclasses_and_array_likes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = np.matrix([[1, 2], [3, 4]], np.float32)
    t = pg.tensor(m)
    assert type(t.numpy()) is np.ndarray
    assert t.raw().shape == (16,)
    assert np.shares_memory(t.raw(), m)
    assert pg.Tensor.from_raw(m, (4,), "f32").numpy().tolist() == [1, 2, 3, 4]
    assert pg.tensor([1, 2]).dtype is pg.i64
    assert pg.tensor(pg.tensor(np.ones(2, np.float16))).dtype is pg.f16
    with pytest.raises(pg.DTypeError, match="masked"):
        pg.tensor(np.ma.masked_array(np.ones(2, np.float32), [True, False]))


REFUSED = ["?", "u1", "u4", "u8", "c8", "O", "U3", "S2", "M8[s]", "m8[s]", "g", "f4,i4"]
REFUSED += ["V4", ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fnuz, ml_dtypes.int4]


@pytest.mark.parametrize("dtype", REFUSED, ids=str)
def test_other_dtypes_are_refused(dtype) -> None:
    with pytest.raises(pg.DTypeError, match=r"tensor: numpy dtype .* has no pyggml dtype"):
        pg.tensor(np.zeros(3, dtype))


def test_nothing_is_rounded_unasked() -> None:
    for value in (None, "text", [None], {}, object(), [True], 1j):
        with pytest.raises(pg.DTypeError):
            pg.tensor(value)
    for value in ([0.1], 0.1, np.array([1e300, np.nan])):
        assert pg.tensor(value).dtype is pg.f64
        assert np.array_equal(pg.tensor(value).numpy(), value, equal_nan=True)
    with pytest.raises(pg.ShapeError, match="at most 4 axes"):
        pg.tensor(np.zeros((1,) * 5, np.float32))


# ---- lifetime ----


def test_views_outlive_the_tensor() -> None:
    a = np.arange(1000, dtype=np.float32)
    t = pg.tensor(a)
    views = [t.numpy(), t.raw().view(np.float32), np.asarray(t)]
    z = pg.zeros((1000,))
    z.numpy()[:] = 3
    views_of_z = z.numpy()
    del a, t, z
    gc.collect()
    junk = [np.full(1000, -1, np.float32) for _ in range(100)]
    assert all(v.sum() == 499_500 for v in views)
    assert views_of_z.sum() == 3000
    assert len(junk) == 100


def test_mapped_memory_stays_mapped(tmp_path) -> None:
    path = tmp_path / "data"
    path.write_bytes(np.arange(1024, dtype=np.float32).tobytes())
    with path.open("rb") as f:
        mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    t = pg.Tensor.from_raw(mapped, (1024,), "f32")
    assert not t.writable
    with pytest.raises(BufferError):
        mapped.close()
    g = pg.Graph()
    program = g.compile(g.const(t) + 0.0)
    del t, g, mapped
    gc.collect()
    assert np.array_equal(program(), np.arange(1024))


# ---- conversions ----


def hard_values(dtype: str) -> np.ndarray:
    """Every midpoint between neighbours of the dtype, and the doubles just beside it."""
    codes = np.arange(256 if dtype == "f8_e4m3" else 0x10000)
    raw = codes.astype(np.uint8 if dtype == "f8_e4m3" else np.uint16)
    values = oracle.decode(np.ascontiguousarray(raw).view(np.uint8), dtype)
    values = np.unique(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    out = np.concatenate([values, middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0)])
    most = np.abs(values).max()
    extra = [most * 1.01, most * 2, 1e300, np.inf, 1e-300, 5e-324, 0.0, np.nan]
    return np.concatenate([out, extra, np.negative(extra)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_doubles_round_once(dtype) -> None:
    values = hard_values(dtype)
    t = pg.tensor(values, dtype=dtype)
    assert np.array_equal(t.raw(), oracle.encode(values, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_round_once(dtype) -> None:
    with np.errstate(over="ignore"):
        values = hard_values(dtype).astype(np.float32)
    assert np.array_equal(pg.tensor(values, dtype=dtype).raw(), oracle.encode(values, dtype))
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    assert np.array_equal(pg.tensor(half, dtype=dtype).raw(), oracle.encode(half, dtype))


def test_saturation() -> None:
    values = np.array([448, 464, 464.1, 465, 1e3, 3e10, np.inf, -1e3, -np.inf])
    assert pg.tensor(values, dtype="f8_e4m3").raw().tolist() == [0x7E] * 7 + [0xFE] * 2
    assert pg.tensor(np.array([np.nan, -np.nan]), dtype="f8_e4m3").raw().tolist() == [0x7F, 0xFF]
    assert pg.tensor(np.array([1e9]), dtype="f16").numpy()[0] == np.inf


@pytest.mark.parametrize("source", ["i1", "u1", "i2", "i4", "u4", "i8", "u8", "?"])
def test_integers_round_once(source) -> None:
    info = np.iinfo(source) if source != "?" else None
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, 50).astype(bool)
    if info is not None:
        values = rng.integers(info.min, info.max, 500, source, endpoint=True)
        values[:3] = (info.min, info.max, 0)
    exact = [int(v) for v in values]
    for dtype in ("bf16", "f16"):
        got = pg.tensor(values, dtype=dtype).numpy().astype(np.float64)
        step = 2**8 if dtype == "bf16" else 2**11
        for number, result in zip(exact, got, strict=True):
            assert result == nearest(number, step, 65504 if dtype == "f16" else 2**127), number
    assert np.array_equal(pg.tensor(values, dtype="f32").numpy(), values.astype(np.float32))


def nearest(number: int, significand: int, most: int) -> float:
    """The integer rounded to so many steps a power of two, ties to even; inf past the largest."""
    unit = 1
    while abs(number) >= unit * significand:
        unit *= 2
    low, rest = divmod(abs(number), unit)
    low += 2 * rest > unit or (2 * rest == unit and low % 2 == 1)
    value = low * unit if low * unit <= most else float("inf")
    return float(-value if number < 0 else value)


def test_ties_past_two_to_the_53() -> None:
    """Values that a detour through float64 would round the wrong way."""
    tie = 2**62 + 2**54
    for source in (np.int64, np.uint64):
        t = pg.tensor(np.array([tie - 1, tie, tie + 1], source), dtype="bf16")
        assert t.numpy().astype(np.float64).tolist() == [2.0**62, 2.0**62, 2.0**62 + 2**55]
    t = pg.tensor(np.array([-tie + 1, -tie, -tie - 1]), dtype="bf16")
    assert t.numpy().astype(np.float64).tolist() == [-(2.0**62), -(2.0**62), -(2.0**62) - 2**55]


def test_long_doubles_round_once() -> None:
    wide = np.longdouble(1.0625)
    values = np.array([wide - np.longdouble(2) ** -60, wide, wide + np.longdouble(2) ** -60])
    expected = [1.0, 1.0, 1.125] if np.finfo(np.longdouble).nmant >= 63 else [1.0, 1.0, 1.0]
    assert pg.tensor(values, dtype="f8_e4m3").dequantize().tolist() == expected


def test_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in ("f32", *FLOATS):
            pg.tensor(np.array([1e300, 1e-300, np.inf, np.nan, -1e39]), dtype=dtype)
        nan = np.array([0x7FF0000000000001, 0x7FA00000], np.uint64).view(np.float64)
        pg.tensor(nan, dtype="f8_e4m3")


BLOCKS = [d.name for d in DTYPES if d.is_block and not d.is_fixed]


@pytest.mark.parametrize("dtype", BLOCKS)
def test_blocks(dtype) -> None:
    block = pg.dtype(dtype).block
    n = max(block, 64)
    values = np.random.default_rng(4).standard_normal((3, n)).astype(np.float32)
    t = pg.tensor(values, dtype, "w")
    raw = oracle.encode(values, dtype)
    assert np.array_equal(t.raw(), raw.reshape(-1))
    assert np.array_equal(t.dequantize(), oracle.decode(raw, dtype).reshape(3, n))
    again = pg.Tensor.from_raw(raw.tobytes(), (3, n), dtype)
    assert np.array_equal(again.dequantize(), t.dequantize())
    for use in (t.numpy, lambda: np.asarray(t)):
        with pytest.raises(pg.DTypeError, match=f"{dtype} packs {block} elements"):
            use()
    with pytest.raises(pg.ShapeError, match="multiple of"):
        pg.tensor(np.zeros((2, 33), np.float32), dtype=dtype)
    with pytest.raises(pg.ShapeError, match="multiple of"):
        pg.zeros((), dtype)
    assert repr(t) == f"<Tensor 'w' (3, {n}) {dtype}, {raw.size:,} bytes>"


def test_dequantize_is_a_copy() -> None:
    every = np.arange(256, dtype=np.uint8)
    t = pg.Tensor.from_raw(every, (256,), "f8_e4m3")
    assert np.array_equal(t.dequantize(), formats.e4m3_decode(every), equal_nan=True)
    assert pg.tensor([0.1, 1e300]).dequantize().tolist() == [0.1, 1e300]
    ids = pg.tensor(np.arange(3))
    assert ids.dequantize().dtype == np.int64
    assert not np.shares_memory(ids.dequantize(), ids.raw())
    plain = pg.zeros((2, 2))
    assert not np.shares_memory(plain.dequantize(), plain.raw())


def test_integer_targets_are_exact() -> None:
    assert pg.tensor(np.array([1, 2], np.int16), dtype="i32").numpy().dtype == np.int32
    assert pg.tensor(np.array([1, 2], np.uint8), dtype="i16").numpy().dtype == np.int16
    for source, dtype in (("i8", "i32"), ("f4", "i32"), ("f8", "i64"), ("u8", "i64"), ("u1", "i8")):
        with pytest.raises(pg.DTypeError, match="exactly"):
            pg.tensor(np.zeros(2, source), dtype=dtype)
    for source in ("c8", "O", "U1", "M8[s]", "V4"):
        with pytest.raises(pg.DTypeError, match="does not convert to f32"):
            pg.tensor(np.zeros(2, source), dtype="f32")


# ---- raw bytes and zeros ----


def test_from_raw() -> None:
    data = bytearray(range(12))
    t = pg.Tensor.from_raw(data, (3,), "f32", "w")
    assert np.shares_memory(t.raw(), np.frombuffer(data, np.uint8))
    with pytest.raises(BufferError):
        data.clear()
    assert pg.Tensor.from_raw(b"", (0, 5), "bf16").shape == (0, 5)
    with pytest.raises(pg.ShapeError, match=r"\(3,\) f32 takes 12 bytes, got 11"):
        pg.Tensor.from_raw(bytes(11), (3,), "f32")
    with pytest.raises(pg.ShapeError, match="not contiguous"):
        pg.Tensor.from_raw(np.zeros((4, 4), np.float32).T[1:], (12,), "f32")
    with pytest.raises(pg.ShapeError, match="from_raw"):
        pg.Tensor.from_raw(memoryview(bytes(8))[::2], (4,), "f8_e4m3")
    for shape in ((-1,), (2, -3), (1,) * 5):
        with pytest.raises(pg.ShapeError):
            pg.Tensor.from_raw(bytes(4), shape, "f32")
    with pytest.raises(pg.ShapeError):
        pg.Tensor.from_raw(bytes(4), (2**62, 2**62), "f32")


@pytest.mark.parametrize("dtype", [*SCALARS, "q8_0", "q4_1"])
def test_zeros(dtype) -> None:
    t = pg.zeros((3, 64), dtype, "cache")
    assert (t.shape, t.dtype, t.name, t.writable) == ((3, 64), pg.dtype(dtype), "cache", True)
    assert t.raw().ctypes.data % 64 == 0
    assert not t.dequantize().any()


def test_zeros_refuses() -> None:
    for shape in ((65536, 65536, 64), (2**40, 2**20), (2**62, 4), (10**30,)):
        with pytest.raises(pg.OutOfMemoryError):
            pg.zeros(shape)
    with pytest.raises(
        pg.OutOfMemoryError, match=r"1099511627776 bytes are needed, \d+ are available"
    ):
        pg.zeros((65536, 65536, 64))
    with pytest.raises(pg.ShapeError, match="negative"):
        pg.zeros((-1,))


def test_the_second_argument_is_the_dtype():
    """As numpy's."""
    for spelling in ("f16", np.float16, pg.f16):
        assert pg.tensor(np.zeros(2), spelling, "w").dtype is pg.f16
    with pytest.raises(pg.DTypeError, match="'w' is not a dtype"):
        pg.tensor(np.zeros(2), "w")
