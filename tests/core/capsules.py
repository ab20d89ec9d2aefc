"""A DLPack consumer and producer of the tests' own, in ctypes: nothing of it comes from pyggml."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

PLAIN, USED_PLAIN = b"dltensor", b"used_dltensor"
VERSIONED, USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"
READ_ONLY, IS_COPIED = 1, 2

# (code, bits) of dlpack.h 1.1
TYPES = {
    "f32": (2, 32), "f16": (2, 16), "f64": (2, 64), "bf16": (4, 16), "f8_e4m3": (10, 8),
    "i8": (0, 8), "i16": (0, 16), "i32": (0, 32), "i64": (0, 64),
}  # fmt: skip

Deleter = ctypes.CFUNCTYPE(None, c_void_p)  # called without the GIL
Destructor = ctypes.PYFUNCTYPE(None, c_void_p)


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]  # fmt: skip


class Plain(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("owner", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32), ("minor", c_uint32), ("owner", c_void_p), ("deleter", c_void_p),
        ("flags", c_uint64), ("tensor", DLTensor),
    ]  # fmt: skip


api = ctypes.PyDLL(None)
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [c_void_p, ctypes.c_char_p, Destructor]
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_GetPointer.restype = c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
# The same for a capsule that is going: it must not be turned into an object again.
at_end = ctypes.PyDLL(None)
at_end.PyCapsule_GetName.restype = ctypes.c_char_p
at_end.PyCapsule_GetName.argtypes = [c_void_p]


def name_of(capsule: Any) -> bytes:
    return api.PyCapsule_GetName(capsule)


class Taken:
    """A capsule taken as a consumer takes it."""

    def __init__(self, capsule: Any) -> None:
        name = name_of(capsule)
        kind, used = {PLAIN: (Plain, USED_PLAIN), VERSIONED: (Versioned, USED_VERSIONED)}[name]
        self.managed = kind.from_address(api.PyCapsule_GetPointer(capsule, name))
        api.PyCapsule_SetName(capsule, used)
        self.tensor = self.managed.tensor
        self.shape = tuple(self.tensor.shape[: self.tensor.ndim])
        self.strides = tuple(self.tensor.strides[: self.tensor.ndim])
        self.type = (self.tensor.code, self.tensor.bits, self.tensor.lanes)

    def bytes(self) -> bytes:
        count = int(np.prod(self.shape, dtype=int)) * self.tensor.bits // 8
        return ctypes.string_at(self.tensor.data, count) if count else b""

    def delete(self) -> None:
        Deleter(self.managed.deleter)(ctypes.addressof(self.managed))


class Producer:
    """An array whose capsules say what the test wants; counts the calls of the deleter.

    Fields of DLTensor, and `flags`, `major`, `deleter`, `name` by keyword; `shape` and `strides`
    as tuples, None for a null pointer.
    """

    def __init__(self, array: np.ndarray, dtype: str, versioned: bool = True, **fields: Any):
        self.array = array
        self.deleted = self.dropped = 0
        self.asked: list[dict[str, Any]] = []
        self.managed = Versioned() if versioned else Plain()
        self.name = fields.pop("name", VERSIONED if versioned else PLAIN)
        if versioned:
            self.managed.major, self.managed.minor = fields.pop("major", 1), 1
            self.managed.flags = fields.pop("flags", 0)
        self._deleter, self._destructor = Deleter(self._delete), Destructor(self._drop)
        for callback in (self._deleter, self._destructor):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))  # called up to the very end
        self.managed.deleter = fields.pop("deleter", ctypes.cast(self._deleter, c_void_p).value)
        self._fill(array, dtype, fields)

    def _fill(self, array: np.ndarray, dtype: str, fields: dict[str, Any]) -> None:
        t = self.managed.tensor
        t.data, t.device_type, t.device_id, t.byte_offset = array.ctypes.data, 1, 0, 0
        (t.code, t.bits), t.lanes, t.ndim = TYPES[dtype], 1, array.ndim
        lists = {"shape": array.shape, "strides": None} | {
            k: fields.pop(k) for k in ("shape", "strides") if k in fields
        }
        self._lists = {k: v if v is None else (c_int64 * len(v))(*v) for k, v in lists.items()}
        for key, value in self._lists.items():
            setattr(t, key, ctypes.cast(value, POINTER(c_int64)))
            if key == "shape" and value is not None:
                t.ndim = len(value)
        for key, value in fields.items():
            setattr(t, key, value)

    def _delete(self, _managed: int) -> None:
        self.deleted += 1

    def _drop(self, capsule: int) -> None:
        self.dropped += 1
        if at_end.PyCapsule_GetName(capsule) == self.name:
            self.deleted += 1

    def capsule(self) -> Any:
        return api.PyCapsule_New(ctypes.addressof(self.managed), self.name, self._destructor)

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
