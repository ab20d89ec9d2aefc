"""The file as mapped memory, a checked cursor over it, and the metadata decoded on demand.

Used by reader.py. Layout: GGUF specification, section "File Structure". Every length and count is
compared with the bytes that are left before anything is allocated.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np

from pyggml.errors import GGUFError, ParameterError
from pyggml.gguf import constants as c
from pyggml.gguf.arguments import as_path, show
from pyggml.gguf.constants import ValueType

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")
_SCALARS: Final = {t: struct.Struct(code) for t, code in c.VALUE_FORMATS.items()}

_QUOTE_CHARS: Final = 80


def quote(text: str) -> str:
    """A name in quotes for a message: control characters escaped, long names cut."""
    return repr(text if len(text) <= _QUOTE_CHARS else text[:_QUOTE_CHARS] + "...")


class Source:
    """A file mapped read-only, which also words the errors about it.

    The map is unmapped when the last array that views it is gone, so closing never leaves an array
    with memory that is not there.
    """

    def __init__(self, path: str | bytes | os.PathLike[str]) -> None:
        self.path = as_path(path)
        mode = os.stat(self.path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            self.fail("is not a regular file")  # opening a pipe would wait for ever
        with open(self.path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size == 0:
                self.fail("is empty (0 bytes)")
            self._map: mmap.mmap | None = mmap.mmap(
                file.fileno(), self.size, access=mmap.ACCESS_READ
            )

    @property
    def map(self) -> mmap.mmap:
        """The bytes of the file."""
        if self._map is None:
            self.fail("is closed")
        return self._map

    def close(self) -> None:
        """Let go of the map; arrays that view it keep it."""
        self._map = None

    def fail(self, what: str) -> NoReturn:
        """Raise GGUFError with the file's name in front."""
        raise GGUFError(f"GGUF file {self.path!r}: {what}")

    def view(self, start: int, n_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A read-only uint8 array over a part of the file."""
        return np.frombuffer(self.map, dtype=np.uint8, count=n_bytes, offset=start)


class Cursor:
    """Reads a file front to back and refuses to step past its end."""

    def __init__(self, source: Source, pos: int, max_string_bytes: int) -> None:
        self.source = source
        self.pos = pos
        self.max_string_bytes = max_string_bytes
        self._map = source.map

    @property
    def left(self) -> int:
        """Bytes between the cursor and the end of the file."""
        return self.source.size - self.pos

    def take(self, n_bytes: int, what: str) -> int:
        """Step over n_bytes and return where they start."""
        start = self.pos
        if n_bytes > self.source.size - start:
            self.source.fail(
                f"{what} needs {n_bytes} bytes at {start}, file has {self.source.size} bytes"
            )
        self.pos = start + n_bytes
        return start

    def u32(self, what: str) -> int:
        """Read a u32."""
        value: int = _U32.unpack_from(self._map, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """Read a u64."""
        value: int = _U64.unpack_from(self._map, self.take(8, what))[0]
        return value

    def i64(self, what: str) -> int:
        """Read an i64."""
        value: int = _I64.unpack_from(self._map, self.take(8, what))[0]
        return value

    def scalar(self, value_type: ValueType, what: str) -> int | float:
        """Read a number of a fixed size."""
        form = _SCALARS[value_type]
        value: int | float = form.unpack_from(self._map, self.take(form.size, what))[0]
        return value

    def string(self, what: str, limit: int | None = None) -> str:
        """Read a string of at most `limit` bytes (default: the reader's limit)."""
        length = self.u64(f"{what}: length")
        limit = self.max_string_bytes if limit is None else limit
        if length > limit or length > self.left:
            self.source.fail(
                f"{what}: length {length} at {self.pos - 8}, at most {limit} are allowed,"
                f" {self.left} bytes are left, file has {self.source.size} bytes"
            )
        start = self.take(length, what)
        return decode_utf8(self.source, start, length, what)

    def skip_strings(self, count: int, what: str) -> None:
        """Step over `count` strings, checking that each lies inside the file."""
        unpack, data, pos = _U64.unpack_from, self._map, self.pos
        size, limit = self.source.size, self.max_string_bytes
        for i in range(count):
            if pos + 8 > size:
                self.source.fail(
                    f"{what}: string {i} of {count} starts at {pos}, file has {size} bytes"
                )
            length = unpack(data, pos)[0]
            if length > limit or length > size - pos - 8:
                self.source.fail(
                    f"{what}: string {i} of {count} has length {length} at {pos}, at most {limit}"
                    f" are allowed, file has {size} bytes"
                )
            pos += 8 + length
        self.pos = pos


def decode_utf8(source: Source, start: int, length: int, what: str) -> str:
    """Decode a part of the file as UTF-8 text."""
    try:
        return source.map[start : start + length].decode("utf-8")
    except UnicodeDecodeError as error:
        source.fail(
            f"{what}: not valid UTF-8: {error.reason}, found byte"
            f" 0x{error.object[error.start]:02x} at {start + error.start}"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a metadata value lies in the file.

    Attributes:
        type: type of the value, or of the elements of an array.
        count: elements of an array; None for a single value.
        tag: position of the type number, where the encoded value starts.
        start: position of the value's, or the first element's, bytes.
        end: position after the value.
    """

    type: ValueType
    count: int | None
    tag: int
    start: int
    end: int


class Metadata(Mapping[str, Any]):
    """The metadata of a file as a read-only mapping, decoded when a key is first read.

    Single values are int, float, bool or str; arrays of numbers and bools are read-only numpy
    arrays; arrays of strings are lists of str, which callers must not change. Iteration follows the
    file. Strings inside an array are checked to be UTF-8 when the array is first read.
    """

    def __init__(self, source: Source, entries: dict[str, Entry]) -> None:
        self._source = source
        self._entries = entries
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        entry = self.entry(key)
        if key not in self._values:
            self._values[key] = self._decode(key, entry)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._entries

    def __eq__(self, other: object) -> bool:
        """Whether the keys, in any order, and their values are the same."""
        if not isinstance(other, Mapping):
            return NotImplemented
        if self.keys() != other.keys():
            return False
        # array_equal, because == of arrays has no one answer
        return all(np.array_equal(value, other[key]) for key, value in self.items())

    def __repr__(self) -> str:
        return f"<Metadata of {self._source.path!r}: {len(self)} keys>"

    def entry(self, key: str) -> Entry:
        """Type, length and place of a value.

        Raises:
            KeyError: there is no such key.
            ParameterError: a key that is no string.
        """
        if not isinstance(key, str):
            raise ParameterError(f"GGUF file {self._source.path!r}: key {show(key)} is no string")
        return self._entries[key]

    def encoded(self, key: str) -> bytes:
        """The type number and value of a key as they stand in the file.

        Raises:
            KeyError: there is no such key.
            ParameterError: a key that is no string.
        """
        entry = self.entry(key)
        return self._source.map[entry.tag : entry.end]

    def _decode(self, key: str, entry: Entry) -> Any:
        what = f"key {quote(key)}"
        data = self._source.map
        if entry.type is ValueType.STRING:
            if entry.count is None:
                return decode_utf8(self._source, entry.start, entry.end - entry.start, what)
            return self._decode_strings(entry, what)
        if entry.count is None:
            value = _SCALARS[entry.type].unpack_from(data, entry.start)[0]
            return bool(value) if entry.type is ValueType.BOOL else value
        # copied, because elements in the file are not aligned
        array = np.frombuffer(data[entry.start : entry.end], c.VALUE_DTYPES[entry.type])
        return array

    def _decode_strings(self, entry: Entry, what: str) -> list[str]:
        data, pos = self._source.map[entry.start : entry.end], 0
        strings = []
        for i in range(entry.count or 0):
            stop = pos + 8 + _U64.unpack_from(data, pos)[0]
            try:
                strings.append(data[pos + 8 : stop].decode("utf-8"))
            except UnicodeDecodeError:
                length = stop - pos - 8
                decode_utf8(self._source, entry.start + pos + 8, length, f"{what}: string {i}")
            pos = stop
        return strings


def parse_metadata(cursor: Cursor, count: int) -> Metadata:
    """Read the keys and find their values."""
    entries: dict[str, Entry] = {}
    for i in range(count):
        start = cursor.pos
        key = cursor.string(f"key {i} of {count}", c.MAX_KEY_BYTES)
        if not key:
            cursor.source.fail(f"key {i} of {count} at {start} is empty")
        if key in entries:
            cursor.source.fail(f"key {quote(key)} at {start} is there twice")
        entries[key] = _parse_value(cursor, f"key {quote(key)}")
    return Metadata(cursor.source, entries)


def _parse_value(cursor: Cursor, what: str) -> Entry:
    tag = cursor.pos
    value_type = _parse_type(cursor, f"{what}: type")
    if value_type is ValueType.ARRAY:
        return _parse_array(cursor, what, tag)
    start = cursor.pos
    if value_type is ValueType.STRING:
        cursor.string(what)
        start += 8
    else:
        value = cursor.scalar(value_type, f"{what}: {value_type.label} value")
        if value_type is ValueType.BOOL and value > 1:
            cursor.source.fail(f"{what}: a bool must be 0 or 1, found {value} at {start}")
    return Entry(value_type, None, tag, start, cursor.pos)


def _parse_type(cursor: Cursor, what: str) -> ValueType:
    start = cursor.pos
    number = cursor.u32(what)
    if number > max(ValueType):
        cursor.source.fail(f"{what} at {start} must be 0 to {max(ValueType)}, found {number}")
    return ValueType(number)


def _parse_array(cursor: Cursor, what: str, tag: int) -> Entry:
    element = _parse_type(cursor, f"{what}: element type")
    if element is ValueType.ARRAY:
        cursor.source.fail(f"{what}: arrays of arrays are not supported, found one at {tag}")
    counted_at = cursor.pos
    count = cursor.u64(f"{what}: array length")
    each = 8 if element is ValueType.STRING else _SCALARS[element].size
    if count > c.MAX_ARRAY_ELEMENTS or count > cursor.left // each:
        cursor.source.fail(
            f"{what}: array length {count} at {counted_at}: {count} {element.label} of at least"
            f" {each} bytes each do not fit, {cursor.left} bytes are left, at most"
            f" {c.MAX_ARRAY_ELEMENTS} elements are allowed, file has {cursor.source.size} bytes"
        )
    start = cursor.pos
    if element is ValueType.STRING:
        cursor.skip_strings(count, what)
    else:
        cursor.take(count * each, what)
    if element is ValueType.BOOL and count:
        flags = cursor.source.view(start, count)
        if flags.max() > 1:
            bad = start + int(np.argmax(flags > 1))
            found = int(flags[bad - start])
            cursor.source.fail(f"{what}: a bool must be 0 or 1, found {found} at {bad}")
    return Entry(element, count, tag, start, cursor.pos)
