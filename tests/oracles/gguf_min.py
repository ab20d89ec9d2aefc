"""A minimal GGUF reader of its own; it trusts the file. For the oracles only.

Layout, little-endian: "GGUF", u32 version, u64 n_tensors, u64 n_kv; n_kv of (string key,
u32 type, value); n_tensors of (string name, u32 n_dims, u64 dims with the fastest first,
u32 type, u64 offset); padding to the alignment; data. A string is u64 length + bytes.
Source: the GGUF specification (ggml/docs/gguf.md).
"""

import math
import mmap
import struct

import numpy as np

from . import copy

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9

# type id: (name, elements of a block, bytes of a block)
_TYPES = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    20: ("iq4_nl", 32, 18),
    23: ("iq4_xs", 256, 136),
    30: ("bf16", 1, 2),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    43: ("f8_e4m3", 1, 1),
}


class _Cursor:
    """Reads little-endian fields one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def field(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        length = self.field("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind):
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.field("I"), self.field("Q")
            return [self.value(inner) for _ in range(count)]
        return self.field(_SCALARS[kind])


def read_gguf(path):
    """Metadata and dequantised tensors of a GGUF file.

    Shapes: -> (dict key -> value, dict name -> float64 array in numpy order, slowest axis first).
    Source: the layout in this file's head; formats.py for the values.
    """
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = _Cursor(data)
    if cursor.field("4s") != b"GGUF":
        raise ValueError(f"{path} is no GGUF file")
    cursor.field("I")
    n_tensors, n_kv = cursor.field("Q"), cursor.field("Q")
    meta = {}
    for _ in range(n_kv):
        key = cursor.string()
        meta[key] = cursor.value(cursor.field("I"))
    infos = []
    for _ in range(n_tensors):
        name = cursor.string()
        dims = [cursor.field("Q") for _ in range(cursor.field("I"))]
        infos.append((name, dims[::-1], cursor.field("I"), cursor.field("Q")))
    align = meta.get("general.alignment", 32)
    start = (cursor.at + align - 1) // align * align
    tensors = {name: _tensor(data, shape, kind, start + at) for name, shape, kind, at in infos}
    return meta, tensors


def _tensor(data, shape, kind, at):
    """Dequantise the tensor of numpy `shape` that starts at byte `at`."""
    dtype, block, block_bytes = _TYPES[kind]
    n_bytes = math.prod(shape) // block * block_bytes
    raw = np.frombuffer(data, dtype=np.uint8, count=n_bytes, offset=at)
    return copy.decode(raw, dtype).reshape(shape)
