"""Kernels by address: ctypes functions over numpy arrays, guarded memory, FTZ/DAZ."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import pyggml as pg
from oracles import copy as oracle
from oracles import formats
from pyggml import _core

ISAS = _core.isas()
C_FILE = Path(__file__).parents[1] / "c" / "mxcsr.c"
TABLE = Path(__file__).parents[2] / "csrc/kernels/kernel_table.inc"

POINTER, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
C_TYPES = {"void": None, "float": FLOAT, "double": ctypes.c_double, "int": ctypes.c_int}
C_TYPES |= {"int64_t": INT, "size_t": ctypes.c_size_t}

# dtype: (elements a block, bytes a block), of every row that is computed with
DTYPES = {d.name: (d.block, d.itemsize) for d in pg.dtypes.DTYPES if d.is_float}
SCALAR = tuple(name for name, (block, _) in DTYPES.items() if block == 1 and name != "f32")
BLOCKS = tuple(name for name, (block, _) in DTYPES.items() if block > 1)
FIXED = tuple(d.name for d in pg.dtypes.DTYPES if d.is_fixed)  # the oracle encodes for the tests
ENCODED = tuple(name for name in DTYPES if name not in FIXED)


def _signatures() -> dict[str, tuple]:
    """slot: (result, arguments ...), as csrc/kernels/kernel_table.inc says them."""
    text = TABLE.read_text()
    named = dict(re.findall(r"^#define (PYG_\w+_ARGS) +\((.*)\)$", text, re.MULTILINE))
    found = {}
    for slot, result, args in re.findall(
        r"^PYG_KERNEL\((\w+), +(\w+), +(.*)\)$", text, re.MULTILINE
    ):
        declared = [a.split() for a in named.get(args, args.strip("()")).split(",")]
        kinds = [POINTER if "*" in " ".join(a) else C_TYPES[a[0]] for a in declared]
        found[slot] = (C_TYPES[result], *kinds)
    return found


SIGNATURES = _signatures()
# direct slot: (slot it stands for, dtype), of csrc/kernels/direct_table.inc
DIRECT = {
    direct: (slot, dtype)
    for slot, dtype, direct in re.findall(
        r"^PYG_DIRECT\((\w+), +(\w+), +(\w+)\)$",
        TABLE.with_name("direct_table.inc").read_text(),
        re.MULTILINE,
    )
}
UNARY_SLOTS = tuple(s for s, kinds in SIGNATURES.items() if kinds == (None, INT, POINTER, POINTER))
GATED = ("swiglu", "geglu", "geglu_erf", "geglu_quick", "reglu")


def _pointer(argument, wide=False):
    if not isinstance(argument, np.ndarray):
        return argument
    assert wide or argument.dtype != np.float64, "kernels take float32"
    return argument.ctypes.data


@functools.cache
def kernel(isa: str, slot: str):
    """The kernel as a function that takes arrays where the C one takes pointers."""
    result, *arguments = SIGNATURES[slot]
    function = ctypes.CFUNCTYPE(result, *arguments)(_core.kernel_address(isa, slot))
    wide = slot in ("attn_softmax", "decay_add")  # the slots that keep sums in double
    return lambda *values: function(*(_pointer(value, wide) for value in values))


def words(dtype: str):
    """The numpy type of one stored code."""
    return np.dtype(formats.WORDS.get(dtype, np.uint8)).type


def row_bytes(dtype: str, n: int) -> int:
    """Bytes of n elements."""
    elements, size = DTYPES[dtype]
    return n // elements * size


def decoded(dtype: str, codes: np.ndarray) -> np.ndarray:
    """The oracle's float64 values of stored codes."""
    return oracle.decode(np.ascontiguousarray(codes).view(np.uint8), dtype)


def encoded(dtype: str, x: np.ndarray) -> np.ndarray:
    """The oracle's codes for values."""
    return oracle.encode(x, dtype).view(words(dtype))


@functools.cache
def halves(dtype: str) -> tuple[int, ...]:
    """Offsets of the halves in a block by which all its values are scaled or moved: a NaN there, in
    a block of zeros, is one everywhere. (mxfp4 and nvfp4 have none.)
    """
    size = DTYPES[dtype][1]
    raw = np.zeros((size - 1, size), np.uint8)
    raw[np.arange(size - 1), np.arange(1, size)] = 0x7E
    with np.errstate(all="ignore"):
        return tuple(np.flatnonzero(np.isnan(oracle.decode(raw, dtype)).all(axis=1)).tolist())


class Guarded:
    """Memory that ends at a page nobody may touch, after another such page."""

    def __init__(self, pages: int = 8) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [POINTER, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.mprotect.argtypes = [POINTER, ctypes.c_size_t, ctypes.c_int]
        size = (pages + 2) * mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        last = base + size - mmap.PAGESIZE
        for page in (base, last):
            assert libc.mprotect(page, mmap.PAGESIZE, 0) == 0
        view = (ctypes.c_uint8 * (size - 2 * mmap.PAGESIZE)).from_address(base + mmap.PAGESIZE)
        self.bytes = np.frombuffer(view, dtype=np.uint8)

    def at_end(self, array: np.ndarray) -> np.ndarray:
        """A copy of the array whose last byte is the last one that may be touched."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        place = self.bytes[len(self.bytes) - len(raw) :]
        place[:] = raw
        return place.view(array.dtype).reshape(array.shape)

    def at_start(self, array: np.ndarray) -> np.ndarray:
        """A copy whose first byte is the first one that may be touched."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.bytes[: len(raw)] = raw
        return self.bytes[: len(raw)].view(array.dtype).reshape(array.shape)


@functools.cache
def guarded(i: int = 0, pages: int = 8) -> Guarded:
    """Guarded memory number i, made once."""
    return Guarded(pages)


def moved(array: np.ndarray, by: int, poison: int = 0x7F) -> np.ndarray:
    """A copy that starts `by` bytes past a 64-byte border, poison bytes around it."""
    size = array.nbytes
    room = np.full(size + 256, poison, dtype=np.uint8)
    start = -room.ctypes.data % 64 + 64 + by
    place = room[start : start + size]
    place[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return place.view(array.dtype).reshape(array.shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal byte for byte, NaN payloads and zero signs too."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@functools.cache
def _mxcsr():
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "mxcsr.so"
        command = ["cc", "-O1", "-shared", "-fPIC", str(C_FILE), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


@contextlib.contextmanager
def denormals_flushed(bits=0x8040):
    """FTZ (0x8000) and DAZ (0x0040) on in this thread, on CPUs that have them."""
    before = _mxcsr().flush_denormals(bits)
    try:
        yield
    finally:
        _mxcsr().flush_denormals(before)
