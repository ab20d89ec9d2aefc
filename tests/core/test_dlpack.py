"""DLPack in and out: memory shared, kept alive, refused where it cannot be described."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg


class Exporter:
    """Another library's array."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device = device

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


DTYPES = ["f4", "f2", "i4", "i8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (1, 1, 5), (0, 4), (2, 1, 3, 2)])
def test_out(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    t = pg.tensor(array)
    assert t.__dlpack_device__() == (1, 0)
    out = np.from_dlpack(t)
    assert (out.shape, out.dtype) == (shape, array.dtype)
    assert np.array_equal(out, array)
    assert np.shares_memory(out, t.raw()) == (array.size > 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (1, 1, 5), (0, 4), (2, 1, 3, 2)])
def test_in(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    t = pg.from_dlpack(Exporter(array), "weights")
    assert (t.shape, t.dtype.numpy, t.name) == (shape, array.dtype, "weights")
    assert np.array_equal(t.numpy(), array)
    assert np.shares_memory(t.raw(), array) == (array.size > 0)


def test_a_graph_writes_into_the_shared_memory() -> None:
    array = np.zeros((2, 3), np.float32)
    t = pg.from_dlpack(Exporter(array))
    assert t.writable
    g = pg.Graph()
    x = g.input("x", (2, 3))
    pg.ops.cpy(x, t)
    g.compile(x)(x=np.full((2, 3), 7, np.float32))
    assert array.tolist() == [[7] * 3] * 2
    array[:] = 1
    assert t.numpy().tolist() == [[1] * 3] * 2


def test_options() -> None:
    t = pg.tensor(np.ones(3, np.float32))
    assert "dltensor_versioned" in repr(t.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(t.__dlpack__())
    assert '"dltensor"' in repr(t.__dlpack__(stream=None, max_version=None, copy=None))
    copied = np.from_dlpack(t, copy=True)
    assert not np.shares_memory(copied, t.raw())
    with pytest.raises(BufferError):
        t.__dlpack__(dl_device=(2, 0))


def test_read_only() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    t = pg.tensor(array)
    with pytest.raises(BufferError):
        t.__dlpack__()
    back = pg.from_dlpack(t)
    assert not back.writable
    g = pg.Graph()
    with pytest.raises(pg.ReadOnlyError):
        pg.ops.cpy(g.input("x", (3,)), back)


@pytest.mark.parametrize("dtype", ["bf16", "f8_e4m3"])
def test_dtypes_that_numpy_does_not_take(dtype: str) -> None:
    t = pg.tensor(np.ones(32, np.float32), dtype=dtype)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(t)


def test_in_refuses() -> None:
    for thing in (None, [1, 2], b"bytes", object()):
        with pytest.raises(TypeError, match="has no __dlpack__"):
            pg.from_dlpack(thing)
    with pytest.raises(BufferError, match=r"on device \(2, 0\)"):
        pg.from_dlpack(Exporter(np.ones(3, np.float32), (2, 0)))
    for array in (np.ones((2, 3), np.float32).T, np.ones(6, np.float32)[::2]):
        with pytest.raises(pg.ShapeError, match="not dense"):
            pg.from_dlpack(array)
    for array in (np.ones(3, np.complex64), np.ones(3, bool), np.ones(3, np.uint16)):
        with pytest.raises(pg.DTypeError):
            pg.from_dlpack(array)
    with pytest.raises(BufferError):
        pg.from_dlpack(np.ones(3, ml_dtypes.bfloat16))
    with pytest.raises(pg.ShapeError, match="at most 4 axes"):
        pg.from_dlpack(np.ones((1,) * 5, np.float32))
    misaligned = np.frombuffer(b"\0" * 13, np.uint8)[1:].view(np.float32)
    assert not misaligned.flags.aligned
    with pytest.raises(pg.ShapeError, match="not aligned"):
        pg.from_dlpack(misaligned)


def test_the_owner_is_kept_alive() -> None:
    class Owned(np.ndarray):
        pass

    owner = np.arange(1000, dtype=np.float32).view(Owned)
    seen = weakref.ref(owner)
    t = pg.from_dlpack(owner)
    del owner
    gc.collect()
    assert seen() is not None
    g = pg.Graph()
    program = g.compile(g.const(t) * 1.0)
    del t, g
    gc.collect()
    junk = [np.full(1000, 7, np.float32) for _ in range(50)]
    assert np.array_equal(program(), np.arange(1000))
    assert seen() is not None
    del program, junk
    gc.collect()
    assert seen() is None


def test_what_is_handed_out_outlives_the_tensor() -> None:
    t = pg.tensor(np.arange(1000, dtype=np.float32))
    out = np.from_dlpack(t)
    unused = t.__dlpack__()
    del t
    gc.collect()
    del unused  # a capsule that nobody took frees what it holds
    gc.collect()
    junk = [np.full(1000, 7, np.float32) for _ in range(50)]
    assert np.array_equal(out, np.arange(1000))
    assert len(junk) == 50


def test_round_trip() -> None:
    t = pg.zeros((4, 4), "f16")
    again = pg.from_dlpack(t)
    again.numpy()[1, 2] = 5
    assert t.numpy()[1, 2] == 5
