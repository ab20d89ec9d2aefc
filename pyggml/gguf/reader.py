"""Reads GGUF files, versions 2 and 3: maps the file, checks its whole header, and gives views.

Used by the model loader and by every tool that looks into a file. All numbers of the header are
checked when the file is opened, in Python integers (which cannot wrap), before anything is
allocated from them. Layout: GGUF specification; limits: those of ggml's own reader.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Final

import ml_dtypes
import numpy as np

from pyggml.checks import as_bool, as_int
from pyggml.errors import ParameterError
from pyggml.gguf import constants as c
from pyggml.gguf.arguments import as_path, show
from pyggml.gguf.constants import TensorType, ValueType
from pyggml.gguf.metadata import Cursor, Metadata, Source, parse_metadata, quote

NUMPY_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "i8": np.dtype("|i1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "f64": np.dtype("<f8"),
}

# first bytes of files that get mistaken for GGUF
_MISTAKEN: Final = (
    (b"FUGG", "a GGUF file with its magic byte-swapped"),
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file it stands for"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGJT file from before GGUF"),
    (b"fmgg", "a GGMF file from before GGUF"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a file.

    Attributes:
        name: its name in the file.
        type: how it is stored.
        ne: its dimensions, the fastest first, as in the file.
        offset: where its bytes start, counted from the start of the data section.
        file_offset: the same, counted from the start of the file.
        n_bytes: size of its bytes, without padding.
    """

    name: str
    type: TensorType
    ne: tuple[int, ...]
    offset: int
    file_offset: int
    n_bytes: int
    _source: Source = field(repr=False, compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions in numpy order, the fastest last."""
        return self.ne[::-1]

    @property
    def raw(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The stored bytes: a read-only uint8 view (n_bytes,) of the mapped file.

        Raises:
            GGUFError: the file was closed before.
        """
        return self._source.view(self.file_offset, self.n_bytes)

    @property
    def data(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The values: a read-only view of the mapped file, which stays valid after closing it.

        Shapes: `shape` for the plain types; for block types the last axis is the row's bytes.
        Dtypes: the type's numpy dtype, bf16 and f8_e4m3 from ml_dtypes; uint8 for block types.

        Raises:
            GGUFError: the file was closed before.
        """
        dtype = NUMPY_DTYPES.get(self.type.name)
        if dtype is None:
            return self.raw.reshape(*self.shape[:-1], self.type.row_bytes(self.shape[-1]))
        return self.raw.view(dtype).reshape(self.shape)


class GGUFFile:
    """A GGUF file, open for reading and mapped into memory.

    A context manager. Closing it, or dropping it, leaves arrays that were taken from it usable.
    The mapped file must not be truncated by another program meanwhile.

    Args:
        path: the file.
        strict: also require that the tensors lie densely and in order, as ggml's writer puts them.
        max_string_bytes: longest string taken.

    Attributes:
        path: the path as given; one of bytes as str.
        version: 2 or 3.
        metadata: keys and values, decoded on demand.
        tensors: name to TensorInfo, in the file's order.
        alignment: of the data section and of every tensor.
        data_offset: where the data section starts.
        size: bytes of the file.

    Raises:
        GGUFError: the file is malformed, truncated or of a kind that is not supported, or the path
            holds a NUL or half a character.
        OSError: it cannot be opened.
        ParameterError: an argument is not what it is said to be above.
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        *,
        strict: bool = False,
        max_string_bytes: int = c.MAX_STRING_BYTES,
    ) -> None:
        plain = as_path(path)
        at = f"GGUF file {plain!r}"
        strict = as_bool(f"{at}: strict", strict)
        max_string_bytes = as_int(f"{at}: max_string_bytes", max_string_bytes)
        if max_string_bytes < 0:
            raise ParameterError(f"{at}: max_string_bytes {show(max_string_bytes)} is negative")
        self.path = plain if isinstance(path, bytes) else path
        self._source = Source(path)
        try:
            self._parse(strict, min(max_string_bytes, c.MAX_INT64))
        except BaseException:
            self._source.close()
            raise

    def _parse(self, strict: bool, max_string_bytes: int) -> None:
        source = self._source
        self.size = source.size
        cursor = Cursor(source, 0, max_string_bytes)
        self.version, n_tensors, n_keys = _parse_header(cursor)
        self.metadata = parse_metadata(cursor, n_keys)
        self.alignment = _alignment(source, self.metadata)
        rows = _parse_infos(cursor, n_tensors)
        self.data_offset = c.pad(cursor.pos, self.alignment)
        self.tensors = {
            row.name: TensorInfo(
                row.name,
                row.type,
                row.ne,
                row.offset,
                self.data_offset + row.offset,
                _tensor_bytes(source, row, self.alignment),
                source,
            )
            for row in rows
        }
        _check_layout(self, source, strict)
        _check_fp8(self, source)

    def metadata_type(self, key: str) -> str:
        """The exact type of a value: ``"u32"``, ``"string"``, for arrays ``"u32[]"``.

        Raises:
            KeyError: there is no such key.
            ParameterError: a key that is no string.
        """
        entry = self.metadata.entry(key)
        return entry.type.label + ("" if entry.count is None else "[]")

    def metadata_length(self, key: str) -> int | None:
        """Elements of an array, without decoding it; None for a single value.

        Raises:
            KeyError: there is no such key.
            ParameterError: a key that is no string.
        """
        return self.metadata.entry(key).count

    def close(self) -> None:
        """Let go of the file. Arrays taken from it stay valid and keep it mapped."""
        self._source.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<GGUFFile {self._source.path!r}: version {self.version}, {len(self.metadata)} keys,"
            f" {len(self.tensors)} tensors, {self.size} bytes>"
        )


@dataclass(frozen=True, slots=True)
class _Row:
    """A tensor info as it stands in the file."""

    name: str
    type: TensorType
    ne: tuple[int, ...]
    offset: int


def _parse_header(cursor: Cursor) -> tuple[int, int, int]:
    source = cursor.source
    head = source.map[:512]
    if head[:4] != c.MAGIC[: len(head)]:
        source.fail(f"bad magic: expected b'GGUF', found {head[:4]!r}{_guess(head)}")
    if source.size < c.HEADER_BYTES:
        source.fail(f"too short: a header has {c.HEADER_BYTES} bytes, file has {source.size} bytes")
    cursor.take(4, "magic")
    version = cursor.u32("version")
    if version != 0 and version & 0xFFFF == 0:
        source.fail(
            f"is a big-endian file (version field 0x{version:08x});"
            " only little-endian files are supported"
        )
    if version not in c.READABLE_VERSIONS:
        source.fail(f"version must be 2 or 3, found {version}")
    n_tensors = cursor.u64("tensor count")
    n_keys = cursor.u64("key count")
    for count, least, what in (
        (n_tensors, c.MIN_TENSOR_INFO_BYTES, "tensors"),
        (n_keys, c.MIN_KEY_VALUE_BYTES, "keys"),
    ):
        if count > cursor.left // least:
            source.fail(
                f"header: found a count of {count} {what} of at least {least} bytes each,"
                f" {cursor.left} bytes are left, file has {source.size} bytes"
            )
    return version, n_tensors, n_keys


def _guess(head: bytes) -> str:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "; this is an HTML page, not a model: was a web page saved in place of the file?"
    if len(head) > 8 and head[8:9] == b"{" and head[6:8] == b"\0\0":
        return "; this looks like a safetensors file"
    for magic, what in _MISTAKEN:
        if head.startswith(magic):
            return f"; this looks like {what}"
    return ""


def _alignment(source: Source, metadata: Metadata) -> int:
    if c.KEY_ALIGNMENT not in metadata:
        return c.DEFAULT_ALIGNMENT
    entry = metadata.entry(c.KEY_ALIGNMENT)
    if entry.type is not ValueType.U32 or entry.count is not None:
        found = entry.type.label + ("" if entry.count is None else " array")
        source.fail(f"key '{c.KEY_ALIGNMENT}': must be a u32, found a {found}")
    value: int = metadata[c.KEY_ALIGNMENT]
    if not c.is_alignment(value):
        source.fail(
            f"key '{c.KEY_ALIGNMENT}': must be a power of two and at least {c.MIN_ALIGNMENT},"
            f" found {value}"
        )
    return value


def _parse_infos(cursor: Cursor, count: int) -> Iterable[_Row]:
    rows: dict[str, _Row] = {}
    for i in range(count):
        start = cursor.pos
        name = cursor.string(f"name of tensor {i} of {count}", c.MAX_TENSOR_NAME_BYTES)
        if not name or "\0" in name:
            fault = "is empty" if not name else f"{quote(name)} holds a NUL"
            cursor.source.fail(f"name of tensor {i} of {count} at {start} {fault}")
        if name in rows:
            cursor.source.fail(f"tensor {quote(name)} at {start} is there twice")
        rows[name] = _parse_info(cursor, name, f"tensor {quote(name)}")
    return rows.values()


def _parse_info(cursor: Cursor, name: str, what: str) -> _Row:
    source = cursor.source
    n_dims = cursor.u32(f"{what}: number of dimensions")
    if n_dims > c.MAX_DIMS:
        source.fail(f"{what}: at most {c.MAX_DIMS} dimensions are allowed, found {n_dims}")
    ne = tuple(cursor.i64(f"{what}: dimension {axis}") for axis in range(n_dims))
    if any(n <= 0 for n in ne):
        source.fail(f"{what}: every dimension must be positive, found {ne} (fastest first)")
    type_id = cursor.u32(f"{what}: type")
    if type_id not in c.TENSOR_TYPES:
        source.fail(f"{what}: has no type of the format, found {c.describe_type_id(type_id)}")
    return _Row(name, c.TENSOR_TYPES[type_id], ne, cursor.u64(f"{what}: offset"))


def _tensor_bytes(source: Source, row: _Row, alignment: int) -> int:
    """Bytes of a tensor; its element count, bytes and padded bytes must all fit an int64."""
    what = f"tensor {quote(row.name)}"
    n = 1
    for size in row.ne:
        n *= size
    if n > c.MAX_INT64:
        source.fail(f"{what}: {row.ne} (fastest first) are more than 2^63-1 elements")
    first = row.ne[0] if row.ne else 1
    if first % row.type.block:
        source.fail(
            f"{what}: rows of {row.type.name} must be a multiple of {row.type.block} elements,"
            f" found {first}"
        )
    n_bytes = row.type.row_bytes(n)
    if c.pad(n_bytes, alignment) > c.MAX_INT64:
        source.fail(
            f"{what}: {row.ne} (fastest first) of {row.type.name}, padded to {alignment},"
            " are more than 2^63-1 bytes"
        )
    return n_bytes


def _check_layout(file: GGUFFile, source: Source, strict: bool) -> None:
    """Every tensor aligned, inside the file, and clear of every other."""
    dense = 0
    for info in file.tensors.values():
        what = f"tensor {quote(info.name)}: offset {info.offset}"
        if info.offset % file.alignment:
            source.fail(f"{what} is not a multiple of the alignment, {file.alignment}")
        end = info.file_offset + info.n_bytes
        if end > file.size:
            source.fail(
                f"{what} of the data at {file.data_offset} and {info.n_bytes} bytes end at {end},"
                f" file has {file.size} bytes"
            )
        if strict and info.offset != dense:
            source.fail(f"{what} leaves a gap or is out of order, expected {dense} (strict)")
        dense += c.pad(info.n_bytes, file.alignment)
    ordered = sorted(file.tensors.values(), key=lambda info: info.offset)
    for info, after in pairwise(ordered):
        if info.offset + info.n_bytes > after.offset:
            source.fail(
                f"tensor {quote(after.name)}: offset {after.offset} overlaps tensor"
                f" {quote(info.name)}, which has {info.n_bytes} bytes from {info.offset}"
            )


def _check_fp8(file: GGUFFile, source: Source) -> None:
    """Refuse the type id of f8_e4m3 when another program means another layout by it.

    Plain codes, 34-byte and 132-byte blocks all differ in size, so the distance to the next tensor
    (or to the end of the file) tells them apart. The marker only has to agree when it is there.
    """
    ordered = sorted(file.tensors.values(), key=lambda info: info.offset)
    codes = [i for i, info in enumerate(ordered) if info.type.name == "f8_e4m3"]
    if not codes:
        return
    meta = file.metadata
    version = meta.get(c.KEY_FP8_VERSION, c.FP8_VERSION)
    if not isinstance(version, int) or c.FP8_IDS.get(version) != c.FP8_TYPE_ID:
        source.fail(f"key '{c.KEY_FP8_VERSION}': must be {c.FP8_VERSION}, found {version!r:.80}")
    layout = meta.get(c.KEY_FP8_LAYOUT, c.FP8_LAYOUT)
    if not isinstance(layout, str) or layout != c.FP8_LAYOUT:
        source.fail(f"key '{c.KEY_FP8_LAYOUT}': must be '{c.FP8_LAYOUT}', found {layout!r:.80}")
    for i in codes:
        info = ordered[i]
        last = i + 1 == len(ordered)
        room = (file.size if last else ordered[i + 1].file_offset) - info.file_offset
        if not _fills(info.n_bytes, room, file.alignment, last):
            source.fail(_fp8_mismatch(info, room, file.alignment, last))


def _fills(n_bytes: int, room: int, alignment: int, last: bool) -> bool:
    """Whether n_bytes with padding are exactly the room; a file may end before the padding."""
    padded = c.pad(n_bytes, alignment)
    return n_bytes <= room <= padded if last else room == padded


def _fp8_mismatch(info: TensorInfo, room: int, alignment: int, last: bool) -> str:
    n = info.n_bytes
    likely = [
        other.text
        for other in c.FOREIGN_FP8
        if _fills(-(-n // other.block) * other.bytes, room, alignment, last)
    ]
    guess = " or ".join(likely) if likely else "no layout that pyggml knows"
    return (
        f"tensor {quote(info.name)}: type f8_e4m3 (id {c.FP8_TYPE_ID}) of {n} codes takes"
        f" {c.pad(n, alignment)} bytes with padding, but {room} bytes lie before"
        f" {'the end of the file' if last else 'the next tensor'}; that is the size of {guess}."
        " Other programs use this id for other layouts of FP8"
    )
