"""Builds GGUF files byte by byte, valid or not, without the product's writer."""

from __future__ import annotations

import contextlib
import struct
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

# type numbers as the format's specification gives them
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A string; `length` overrides the one that is true."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data) if length is None else length) + data


def key(name: str | bytes, kind: int, payload: bytes) -> bytes:
    """A key with its value."""
    return text(name) + struct.pack("<I", kind) + payload


def u32_key(name: str, value: int) -> bytes:
    """A key with a u32."""
    return key(name, U32, struct.pack("<I", value))


def string_key(name: str, value: str | bytes) -> bytes:
    """A key with a string."""
    return key(name, STRING, text(value))


def array_key(name: str, kind: int, count: int, payload: bytes) -> bytes:
    """A key with an array; count may lie."""
    return key(name, ARRAY, struct.pack("<IQ", kind, count) + payload)


def info(
    name: str | bytes, ne: Sequence[int], kind: int, offset: int, n_dims: int | None = None
) -> bytes:
    """A tensor info; dimensions fastest first, any 64-bit value."""
    count = len(ne) if n_dims is None else n_dims
    dims = b"".join(struct.pack("<Q", n & (2**64 - 1)) for n in ne)
    return text(name) + struct.pack("<I", count) + dims + struct.pack("<IQ", kind, offset)


def header(
    keys: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    *,
    version: int = 3,
    magic: bytes = b"GGUF",
    n_keys: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    """Everything before the data section, without padding; counts may lie."""
    tensors = len(infos) if n_tensors is None else n_tensors
    pairs = len(keys) if n_keys is None else n_keys
    return magic + struct.pack("<IQQ", version, tensors, pairs) + b"".join([*keys, *infos])


def build(
    keys: Sequence[bytes] = (), infos: Sequence[bytes] = (), data: bytes = b"", align: int = 32
) -> bytes:
    """A whole file: header, padding, data as given."""
    head = header(keys, infos)
    return head + bytes(-len(head) % align) + data


def save(folder: Path, content: bytes, name: str = "m.gguf") -> Path:
    """Write the bytes to a file."""
    path = folder / name
    path.write_bytes(content)
    return path


@contextlib.contextmanager
def bounded(lines: int, n_bytes: int) -> Iterator[None]:
    """At most so many lines of Python are run inside, and so many bytes allocated at a time.

    A loop over a count that lies ends at the bound, so no test of one can hang.
    """
    ran = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal ran
        ran += event == "line"
        if ran > lines:
            raise AssertionError(f"more than {lines} lines were run")
        return trace

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < n_bytes
