"""DLPack capsules field by field: what is in ours, and what is believed of others'."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from core.capsules import (
    IS_COPIED,
    PLAIN,
    READ_ONLY,
    TYPES,
    USED_PLAIN,
    USED_VERSIONED,
    VERSIONED,
    Producer,
    Taken,
    name_of,
)

import pyggml as pg
from pyggml import _core

NEW = {"max_version": (1, 0)}
SHAPES = [(2, 3), (), (1, 1, 5), (0, 4), (2, 1, 3, 2)]
FORMS = pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "plain"])


class Owned(np.ndarray):
    """An array that weak references can watch."""


def owned_tensor(n: int = 64) -> tuple[pg.Tensor, weakref.ref]:
    owner = Owned((n,), np.float32)
    owner[:] = np.arange(n)
    t = pg.tensor(owner)
    assert np.shares_memory(t.raw(), owner)
    return t, weakref.ref(owner)


def bits_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of the dtype's bytes, every value another."""
    kind = pg.dtype(dtype).numpy
    n = int(np.prod(shape, dtype=int)) * kind.itemsize
    return np.random.default_rng(1).integers(0, 256, n, np.uint8).view(kind).reshape(shape)


# ---- out ----


def test_the_list_of_types_is_whole() -> None:
    missing = {d.name for d in pg.dtypes.DTYPES if d.numpy is not None} - set(TYPES)
    assert not missing, f"state DLPack's (code, bits) of {missing} in TYPES of this file"


@FORMS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_capsule_says(dtype: str, shape: tuple[int, ...], versioned: bool) -> None:
    t = pg.Tensor.from_raw(bits_of(dtype, shape).reshape(-1).view(np.uint8), shape, dtype)
    capsule = t.__dlpack__(max_version=(1, 0) if versioned else None)
    assert name_of(capsule) == (VERSIONED if versioned else PLAIN)
    got = Taken(capsule)
    assert name_of(capsule) == (USED_VERSIONED if versioned else USED_PLAIN)
    assert got.type == (*TYPES[dtype], 1)
    assert got.shape == shape
    dense = np.empty(shape, t.dtype.numpy)
    if t.size:
        assert tuple(s * dense.itemsize for s in got.strides) == dense.strides
        assert got.tensor.data == t.raw().ctypes.data
    else:
        assert got.tensor.data is None
    assert (got.tensor.device_type, got.tensor.device_id, got.tensor.byte_offset) == (1, 0, 0)
    assert got.bytes() == t.raw().tobytes()
    if versioned:
        assert (got.managed.major, got.managed.minor, got.managed.flags) == (1, 1, 0)
    got.delete()


@pytest.mark.parametrize(
    ("asked", "name"),
    [(None, PLAIN), ((0, 8), PLAIN), ((1, 0), VERSIONED), ((1, 3), VERSIONED), ((2, 0), VERSIONED)],
)
def test_which_form(asked: Any, name: bytes) -> None:
    assert name_of(pg.zeros((2,)).__dlpack__(max_version=asked)) == name


@FORMS
@pytest.mark.parametrize("dtype", ["q8_0", "q4_k"])
def test_blocks_do_not_pass(dtype: str, versioned: bool) -> None:
    with pytest.raises(BufferError, match=rf"{dtype} does not pass through DLPack; \.raw\(\)"):
        pg.zeros((256,), dtype).__dlpack__(max_version=(1, 0) if versioned else None)


def test_read_only_out() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    t = pg.tensor(array)
    got = Taken(t.__dlpack__(**NEW))
    assert got.managed.flags == READ_ONLY
    got.delete()
    for options in ({}, {"copy": False}):
        with pytest.raises(BufferError, match="read-only memory needs a versioned capsule"):
            t.__dlpack__(**options)
    got = Taken(t.__dlpack__(copy=True))  # a copy may be written
    assert got.tensor.data != array.ctypes.data
    assert got.bytes() == array.tobytes()
    got.delete()
    got = Taken(t.__dlpack__(copy=True, **NEW))
    assert got.managed.flags == IS_COPIED
    got.delete()


def test_options() -> None:
    t = pg.tensor(np.ones(3, np.float32))
    for options in ({"copy": False}, {"dl_device": (1, 0)}, {"stream": None}):
        got = Taken(t.__dlpack__(**options, **NEW))
        assert (got.tensor.data, got.managed.flags) == (t.raw().ctypes.data, 0)
        got.delete()
    for device in ((2, 0), (1, 1), (10, 0)):
        with pytest.raises(BufferError, match=r"in CPU memory, device \(1, 0\), got dl_device="):
            t.__dlpack__(dl_device=device)
    with pytest.raises(BufferError, match="stream must be None, got 1"):
        t.__dlpack__(stream=1)


@FORMS
def test_a_capsule_keeps_the_memory(versioned: bool) -> None:
    t, owner = owned_tensor()
    capsule = t.__dlpack__(max_version=(1, 0) if versioned else None)
    expected = t.raw().tobytes()
    del t
    gc.collect()
    assert owner() is not None
    got = Taken(capsule)
    del capsule  # a used one is not the owner any more
    gc.collect()
    assert owner() is not None
    junk = [np.full(64, 7, np.float32) for _ in range(50)]
    assert got.bytes() == expected
    got.delete()
    gc.collect()
    assert owner() is None
    assert len(junk) == 50


@FORMS
def test_a_capsule_that_nobody_took(versioned: bool) -> None:
    t, owner = owned_tensor()
    capsule = t.__dlpack__(max_version=(1, 0) if versioned else None)
    del t
    gc.collect()
    assert owner() is not None
    del capsule
    gc.collect()
    assert owner() is None


def test_a_deleter_called_by_another_thread() -> None:
    t, owner = owned_tensor()
    got = Taken(t.__dlpack__(**NEW))
    del t
    thread = threading.Thread(target=got.delete)
    thread.start()
    thread.join()
    gc.collect()
    assert owner() is None


def test_the_core_checks_what_it_is_given() -> None:
    for shape in ((3,), (2, 3), (-1, -4), (1 << 62, 4), (-1,)):
        with pytest.raises(pg.ShapeError, match="dlpack: 16 bytes for"):
            _core.dlpack_export(bytearray(16), shape, 2, 32, True, False)
    with pytest.raises(pg.ShapeError, match="at most 4 axes"):
        _core.dlpack_export(bytearray(4), (1,) * 5, 2, 32, True, False)
    with pytest.raises(TypeError):
        _core.dlpack_export(3, (1,), 2, 32, True, False)
    memory = _core.DLPackMemory(Producer(np.ones(3, np.float32), "f32").capsule())
    with pytest.raises(BufferError, match="the capsule was not taken"):
        memoryview(memory)


# ---- in ----


@FORMS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_in(dtype: str, shape: tuple[int, ...], versioned: bool) -> None:
    array = bits_of(dtype, shape)
    made = Producer(array, dtype, versioned)
    t = pg.from_dlpack(made, "w")
    assert made.asked == [{"max_version": (1, 1)}]
    assert (t.shape, t.dtype.name, t.name, t.writable) == (shape, dtype, "w", versioned)
    assert t.raw().tobytes() == array.tobytes()
    assert made.dropped == 1  # the capsule is gone, the memory is not
    assert made.deleted == 0
    assert array.size == 0 or t.raw().ctypes.data == array.ctypes.data
    del t
    gc.collect()
    assert made.deleted == 1


@pytest.mark.parametrize("dtype", ["bf16", "f8_e4m3"])
def test_out_and_in_again(dtype: str) -> None:
    t = pg.tensor(np.linspace(-4, 4, 12).reshape(3, 4), dtype=dtype)
    back = pg.from_dlpack(t)
    assert (back.shape, back.dtype, back.writable) == (t.shape, t.dtype, True)
    back.numpy()[1, 2] = 3
    assert t.numpy()[1, 2] == 3
    g = pg.Graph()
    assert np.array_equal(g.compile(pg.ops.cast(g.const(back), "f32"))(), t.dequantize())


def test_who_keeps_the_producer() -> None:
    made = Producer(np.arange(6, dtype=np.float32), "f32")
    t = pg.from_dlpack(made)
    g = pg.Graph()
    program = g.compile(g.const(t) + 1.0, threads=1)
    view = t.numpy()
    del t, g
    gc.collect()
    assert made.deleted == 0
    assert program().tolist() == [1, 2, 3, 4, 5, 6]
    del program
    gc.collect()
    assert made.deleted == 0
    assert view[5] == 5
    del view
    gc.collect()
    assert made.deleted == 1


def test_writing() -> None:
    array = np.zeros(3, np.float32)
    g = pg.Graph()
    x = g.input("x", (3,))
    pg.ops.cpy(x, pg.from_dlpack(Producer(array, "f32")))
    g.compile(x)(x=np.full(3, 7, np.float32))
    assert array.tolist() == [7, 7, 7]
    for made in (Producer(array, "f32", flags=READ_ONLY), Producer(array, "f32", versioned=False)):
        with pytest.raises(pg.ReadOnlyError):
            pg.ops.cpy(x, pg.from_dlpack(made))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"byte_offset": 8, "shape": (4,)}, [2, 3, 4, 5]),
        ({"strides": (3, 1), "shape": (2, 3)}, [[0, 1, 2], [3, 4, 5]]),
        ({"strides": (99, -7, 1), "shape": (1, 1, 6)}, [[[0, 1, 2, 3, 4, 5]]]),
        ({"strides": (0, 5), "shape": (0, 3)}, np.empty((0, 3)).tolist()),
        ({"device_id": 3}, [0, 1, 2, 3, 4, 5]),
        ({"shape": None, "ndim": 0}, 0),
        ({"shape": (0,), "data": None}, []),
        ({"shape": (0,), "data": 3}, []),
        ({"deleter": None}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_forms_that_are_fine(fields: dict[str, Any], expected: Any) -> None:
    made = Producer(np.arange(6, dtype=np.float32), "f32", **fields)
    t = pg.from_dlpack(made)
    assert t.numpy().tolist() == expected
    del t
    gc.collect()
    assert made.deleted == ("deleter" not in fields)


BIG = 1 << 40
NOWHERE = 0x1000  # reading there is a fault

HOSTILE = [
    ({"ndim": -1}, BufferError, "ndim -1"),
    ({"ndim": -(1 << 31)}, BufferError, "ndim -2147483648"),
    ({"ndim": 5}, pg.ShapeError, "at most 4 axes, the capsule has 5"),
    ({"ndim": (1 << 31) - 1}, pg.ShapeError, "the capsule has 2147483647"),
    ({"shape": None, "ndim": 2}, BufferError, "ndim 2, no shape"),
    ({"shape": (2, -3)}, BufferError, r"shape \(2, -3\)"),
    ({"shape": (-(1 << 63), 2)}, BufferError, "shape"),
    ({"shape": (0, -1)}, BufferError, "shape"),
    ({"shape": (BIG, BIG), "data": NOWHERE}, BufferError, f"{4 << 80} bytes at 0x1000"),
    ({"shape": ((1 << 63) - 1,) * 4, "data": NOWHERE}, BufferError, "bytes at"),
    ({"shape": (1 << 55,), "data": NOWHERE}, BufferError, "bytes at"),
    ({"data": None}, BufferError, "24 bytes at 0x0"),
    ({"data": None, "byte_offset": NOWHERE}, BufferError, r"at 0x0 \+ 4096"),
    ({"data": NOWHERE, "byte_offset": (1 << 64) - 8}, BufferError, "bytes at 0x1000"),
    ({"data": (1 << 64) - 8}, BufferError, "24 bytes at 0xfff"),
    ({"data": NOWHERE + 2}, pg.ShapeError, "not aligned for f32"),
    ({"data": NOWHERE, "byte_offset": 1}, pg.ShapeError, "not aligned for f32"),
    ({"shape": (2, 3), "strides": (1, 2), "data": NOWHERE}, pg.ShapeError, r"\(1, 2\) is not"),
    ({"strides": (2,), "data": NOWHERE}, pg.ShapeError, r"strides \(2,\) is not dense"),
    ({"strides": (-1,), "data": NOWHERE}, pg.ShapeError, r"strides \(-1,\) is not dense"),
    ({"strides": (0,), "data": NOWHERE}, pg.ShapeError, r"strides \(0,\) is not dense"),
    ({"strides": (-(1 << 63),), "data": NOWHERE}, pg.ShapeError, "is not dense"),
    ({"device_type": 2}, BufferError, r"device \(2, 0\)"),
    ({"device_type": -7, "device_id": 1}, BufferError, r"device \(-7, 1\)"),
    ({"code": 1}, pg.DTypeError, r"uint \(code 1\) of 32 bits, 1 lanes"),
    ({"code": 5, "bits": 64}, pg.DTypeError, r"complex \(code 5\) of 64 bits"),
    ({"code": 6, "bits": 8}, pg.DTypeError, r"bool \(code 6\)"),
    ({"code": 11, "bits": 8}, pg.DTypeError, r"float8_e4m3fnuz \(code 11\)"),
    ({"code": 17, "bits": 4}, pg.DTypeError, r"float4_e2m1fn \(code 17\) of 4 bits"),
    ({"code": 255}, pg.DTypeError, r"unknown \(code 255\)"),
    ({"bits": 0}, pg.DTypeError, "of 0 bits"),
    ({"bits": 31}, pg.DTypeError, "of 31 bits"),
    ({"lanes": 4}, pg.DTypeError, "of 32 bits, 4 lanes"),
    ({"lanes": 0}, pg.DTypeError, "0 lanes"),
    ({"major": 2}, BufferError, r"DLPack version 2\.1; pyggml reads 1\.x"),
    ({"major": 0}, BufferError, r"DLPack version 0\.1"),
]


@pytest.mark.parametrize(("fields", "error", "message"), HOSTILE)
def test_refused_before_memory_is_read(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    array = np.arange(6, dtype=np.float32)
    for versioned in (True,) if "major" in fields else (True, False):
        made = Producer(array, "f32", versioned, **fields)
        with pytest.raises(error, match=message) as caught:
            pg.from_dlpack(made)
        assert str(caught.value).startswith("from_dlpack: ")
        del caught
        gc.collect()
        assert (made.dropped, made.deleted) == (1, 1)  # by the capsule, which was not taken


def test_taken_twice() -> None:
    class Again(Producer):
        def __dlpack__(self, **_: Any) -> Any:
            self.only = getattr(self, "only", None) or self.capsule()
            return self.only

    for versioned in (True, False):
        made = Again(np.ones(3, np.float32), "f32", versioned)
        t = pg.from_dlpack(made)
        with pytest.raises(BufferError, match="from_dlpack: the capsule is used up"):
            pg.from_dlpack(made)
        assert t.numpy().tolist() == [1, 1, 1]
        del t
        gc.collect()
        assert made.deleted == 1
        with pytest.raises(BufferError, match="the capsule is used up"):
            pg.from_dlpack(made)
        assert made.deleted == 1


def test_two_threads_and_one_capsule() -> None:
    for _ in range(50):
        made, got, refused = Producer(np.ones(3, np.float32), "f32"), [], []
        memories = [_core.DLPackMemory(c) for c in [made.capsule()] * 4]
        gate = threading.Barrier(4)

        def take(memory: Any, gate=gate, got=got, refused=refused) -> None:
            gate.wait(60)
            try:
                memory.take()
                got.append(memory)
            except BufferError:
                refused.append(memory)

        threads = [threading.Thread(target=take, args=(m,)) for m in memories]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(got), len(refused)) == (1, 3)
        del memories, got, refused, take, threads, thread
        gc.collect()
        assert made.deleted == 1


def test_taking_one_memory_twice() -> None:
    made = Producer(np.ones(3, np.float32), "f32")
    memory = _core.DLPackMemory(made.capsule())
    memory.take()
    with pytest.raises(BufferError, match="used up"):
        memory.take()
    assert bytes(memory) == made.array.tobytes()
    del memory
    assert made.deleted == 1


def test_no_capsule() -> None:
    class Odd(Producer):
        def __dlpack__(self, **_: Any) -> Any:
            return self.thing

    odd = Odd(np.ones(3, np.float32), "f32")
    for thing in (None, 7, b"dltensor", datetime_capsule()):
        odd.thing = thing
        with pytest.raises(TypeError, match="from_dlpack: a DLPack capsule is needed, got"):
            pg.from_dlpack(odd)


def datetime_capsule() -> Any:
    import datetime

    return datetime.datetime_CAPI


def test_an_exporter_without_versions() -> None:
    class Old(Producer):
        def __dlpack__(self, stream: Any = None) -> Any:
            return self.capsule()

    t = pg.from_dlpack(Old(np.ones(3, np.float32), "f32", versioned=False))
    assert t.numpy().tolist() == [1, 1, 1]
    assert not t.writable


@pytest.mark.parametrize("device", [(2, 0), (), (0, 0)])
def test_the_device_is_asked_first(device: tuple[int, ...]) -> None:
    class Elsewhere(Producer):
        def __dlpack_device__(self) -> Any:
            return device

    made = Elsewhere(np.ones(3, np.float32), "f32")
    with pytest.raises(BufferError, match="CPU memory is needed, this is on device"):
        pg.from_dlpack(made)
    assert made.asked == []
