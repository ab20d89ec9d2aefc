"""Writes GGUF files, version 3: metadata with exact types, dense tensors, atomically.

Used by the converters, the quantiser and the tests. A file appears whole or not at all: it is
written under a temporary name in the same folder, synced, and renamed, so a file that is mapped by
a running program is never cut short.
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from pyggml.checks import as_int
from pyggml.errors import DTypeError, GGUFError, ParameterError
from pyggml.gguf import constants as c
from pyggml.gguf.arguments import (
    as_array,
    as_keys,
    as_path,
    as_raw,
    as_shape,
    as_text,
    show,
)
from pyggml.gguf.constants import TensorType, ValueType
from pyggml.gguf.encode import Bytes, check_encodable, encode, type_of
from pyggml.gguf.metadata import quote
from pyggml.gguf.reader import GGUFFile, TensorInfo
from pyggml.gguf.values import encode_string, encode_value

_MARKER_KEYS: Final = frozenset({c.KEY_FP8_VERSION, c.KEY_FP8_LAYOUT})
_OWN_KEYS: Final = _MARKER_KEYS | {c.KEY_ALIGNMENT}

_WRITTEN_PAD: Final = 1 << 16  # bytes up to which padding is written, above it is sought over


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor to be written; `produce` makes its bytes when their turn comes."""

    name: str
    type: TensorType
    ne: tuple[int, ...]
    n_bytes: int
    produce: Callable[[], Bytes]


class GGUFWriter:
    """Collects metadata and tensors, then writes them to a file.

    As a context manager it writes when the block ends without an exception. Tensors are converted
    one at a time while writing: an array must not change between `add_tensor` and `write`.

        with GGUFWriter("model.gguf", arch="llama") as writer:
            writer.add("llama.block_count", 2, "u32")
            writer.add_tensor("output_norm.weight", np.ones(64, np.float32), "f32")

    Args:
        path: the file to make or replace.
        arch: value of ``general.architecture``; None to leave it out.
        alignment: of the tensors: a power of two, at least 8; None for 32, or for what
            `copy_metadata` finds.
        file_type: value of ``general.file_type``, as a name such as "f8_e4m3" or a number.

    Raises:
        GGUFError: a value does not fit the format, or the path holds a NUL or half a character.
        ParameterError: a path that is none, an alignment that is no such number.
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        arch: str | None = None,
        *,
        alignment: int | None = None,
        file_type: str | int | None = None,
    ) -> None:
        self.path = as_path(path)
        self._keys: dict[str, bytes] = {}
        self._tensors: dict[str, _Tensor] = {}
        self._written = False
        self._alignment = None if alignment is None else self._as_alignment(alignment)
        if arch is not None:
            self.add(c.KEY_ARCHITECTURE, arch, "string")
        if isinstance(file_type, str):
            name = as_text("file_type", file_type)
            if name not in c.FILE_TYPE_IDS:
                raise self._error(f"file_type {show(name)} is not known")
            file_type = c.FILE_TYPE_IDS[name]
        if file_type is not None:
            self.add(c.KEY_FILE_TYPE, file_type, "u32")

    @property
    def alignment(self) -> int:
        """Alignment of the data section and of every tensor."""
        return c.DEFAULT_ALIGNMENT if self._alignment is None else self._alignment

    def add(self, key: str, value: Any, type: str) -> None:
        """Add a metadata value.

        Args:
            key: 1 to 65535 bytes.
            value: an int, float, bool or str; a sequence or a 1-d array for the array types.
            type: "u8", "i8", ... "u64", "i64", "f32", "f64", "bool", "string", or an array of
                one of them, such as "u32[]" or "string[]".

        Raises:
            GGUFError: the key is there already or is the writer's own (alignment, FP8 marker), or
                the value is not exactly of that type.
            ParameterError: a key or type that is no string.
            DTypeError: the value is a masked array.
        """
        key = as_text(self._at("key"), key)
        what = f"key {quote(key)}"
        type = as_text(self._at(f"{what}: type"), type)
        if key in _OWN_KEYS:
            raise self._error(f"{what}: the writer sets this key itself")
        try:
            encoded = encode_value(value, type)
        except DTypeError as error:
            raise DTypeError(self._at(f"{what}: {error}")) from None
        except ValueError as error:
            raise self._error(f"{what}: {error}") from error
        self._put_key(key, encoded)

    def add_tensor(self, name: str, array: npt.ArrayLike, type: str | None = None) -> None:
        """Add a tensor from an array in numpy order.

        Args:
            name: 1 to 63 bytes.
            array: of the type's own dtype (written as it is) or floats to be converted.
            type: "f32", "f16", "bf16", "f8_e4m3", "q8_0", or an integer type or "f64" for arrays of
                that dtype; None for the array's own.

        Raises:
            GGUFError: the name is there already, or the array cannot have that type.
            ParameterError: a name or type that is no string.
            DTypeError: no array, or a masked one.
            GraphError: a node, which has no values.
        """
        name = as_text(self._at("tensor name"), name)
        what = f"tensor {quote(name)}"
        values = as_array(self._at(what), array)
        chosen = type_of(values) if type is None else type
        if chosen is None:
            raise self._error(f"{what}: no tensor type has dtype {values.dtype}")
        tensor_type = self._type(chosen, what)
        try:
            check_encodable(values, tensor_type)
        except ValueError as error:
            raise self._error(f"{what}: {error}") from error
        self._put_tensor(name, tensor_type, values.shape, lambda: encode(values, tensor_type))

    def add_raw_tensor(
        self,
        name: str,
        raw: bytes | bytearray | memoryview | npt.NDArray[np.uint8],
        shape: int | Sequence[int],
        type: str,
    ) -> None:
        """Add a tensor whose bytes are already those of the type, block types included.

        Args:
            name: 1 to 63 bytes.
            raw: bytes or another object with a buffer of bytes, a uint8 array of any shape.
            shape: of the tensor in numpy order, in elements; an int for one axis.
            type: name of any tensor type.

        Raises:
            GGUFError: the name is there already, or the bytes do not fit the shape.
            ParameterError: a name or type that is no string, raw without a buffer, a shape that is
                none.
            DTypeError: a masked array.
        """
        name = as_text(self._at("tensor name"), name)
        what = f"tensor {quote(name)}"
        data = as_raw(self._at(what), raw)
        tensor_type = self._type(type, what)
        dims = as_shape(self._at(what), shape)
        n_bytes = self._n_bytes(tensor_type, dims, what)
        if n_bytes != data.size:
            raise self._error(
                f"{what}: {show(dims)} of {tensor_type.name} has {show(n_bytes)} bytes,"
                f" got {data.size}"
            )
        flat = np.ascontiguousarray(data).reshape(-1)
        self._put_tensor(name, tensor_type, dims, lambda: flat)

    def copy_metadata(self, file: GGUFFile, skip: Collection[str] = ()) -> None:
        """Add all metadata of a file, byte for byte, except the keys in `skip`.

        The file's alignment is taken over unless one was chosen; its FP8 marker is written if an
        f8_e4m3 tensor is.

        Raises:
            GGUFError: a key is there already, or the file is closed.
            ParameterError: no GGUFFile, or a `skip` that is no collection of strings.
        """
        if not isinstance(file, GGUFFile):
            raise ParameterError(self._at(f"copy_metadata: {show(file)} is no GGUFFile"))
        left_out = as_keys(self._at("copy_metadata: skip"), skip)
        for key in file.metadata:
            if key in _OWN_KEYS and key not in left_out:
                self._keys.setdefault(key, b"")  # keeps its place; _all_keys gives the value
            elif key not in left_out:
                self._put_key(key, file.metadata.encoded(key))
        if self._alignment is None and c.KEY_ALIGNMENT not in left_out:
            self._alignment = file.alignment

    def copy_tensor(self, info: TensorInfo, name: str | None = None) -> None:
        """Add a tensor of another file as it is, under its own or a new name.

        The bytes are read while writing, from the mapped file, which may be closed by then.

        Args:
            info: the tensor, from `GGUFFile.tensors`.
            name: the new name; None for its own.

        Raises:
            GGUFError: the name is there already or does not fit the format, or the tensor's file
                is closed.
            ParameterError: no TensorInfo, or a name that is no string.
        """
        if not isinstance(info, TensorInfo):
            raise ParameterError(self._at(f"copy_tensor: {show(info)} is no TensorInfo"))
        new = info.name if name is None else as_text(self._at("tensor name"), name)
        raw = info.raw
        self._put_tensor(new, info.type, info.shape, lambda: raw)

    def write(self) -> None:
        """Write the file: to a temporary name, then rename. Can be done once.

        Raises:
            GGUFError: it was written already, or the path is that of a pipe or a device.
            OSError: the file cannot be written; an existing one is left as it was.
        """
        self._check_open()
        target = os.path.realpath(self.path)  # a link is kept, what it points to is replaced
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        if os.path.exists(target) and not os.path.isfile(target):
            raise self._error("is not a regular file")  # renaming would do away with it
        folder = os.path.dirname(target)
        temporary = os.path.join(folder, f".pyggml-{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb") as file:
                self._write_to(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        self._written = True
        _sync_folder(folder)

    def __enter__(self) -> GGUFWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self._written:
            self.write()

    def _at(self, what: str) -> str:
        return f"GGUF file {self.path!r}: {what}"

    def _error(self, what: str) -> GGUFError:
        return GGUFError(self._at(what))

    def _as_alignment(self, value: Any) -> int:
        number = as_int(self._at("alignment"), value)
        if not c.is_alignment(number):
            raise ParameterError(
                self._at(
                    f"alignment must be a power of two and at least {c.MIN_ALIGNMENT},"
                    f" at most 2^31, got {show(number)}"
                )
            )
        return number

    def _check_open(self) -> None:
        if self._written:
            raise self._error("was written already")

    def _utf8_bytes(self, text: str, what: str) -> int:
        try:
            return len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise self._error(f"{what} {quote(text)} cannot be written as UTF-8") from error

    def _type(self, name: str, what: str) -> TensorType:
        name = as_text(self._at(f"{what}: tensor type"), name)
        if name not in c.BY_NAME:
            raise self._error(f"{what}: tensor type {show(name)} is not known")
        return c.BY_NAME[name]

    def _put_key(self, key: str, encoded: bytes) -> None:
        self._check_open()
        n_bytes = self._utf8_bytes(key, "key")
        if not 1 <= n_bytes <= c.MAX_KEY_BYTES:
            raise self._error(
                f"key {quote(key)}: must have 1 to {c.MAX_KEY_BYTES} bytes, got {n_bytes}"
            )
        if key in self._keys:
            raise self._error(f"key {quote(key)} is there already")
        self._keys[key] = encoded

    def _put_tensor(
        self, name: str, type: TensorType, shape: tuple[int, ...], produce: Callable[[], Bytes]
    ) -> None:
        self._check_open()
        what = f"tensor {quote(name)}"
        n_name = self._utf8_bytes(name, "tensor name")
        if not 1 <= n_name <= c.MAX_TENSOR_NAME_BYTES or "\0" in name:
            raise self._error(
                f"{what}: names must have 1 to {c.MAX_TENSOR_NAME_BYTES} bytes and no NUL,"
                f" got {n_name} bytes"
            )
        if name in self._tensors:
            raise self._error(f"{what} is there already")
        n_bytes = self._n_bytes(type, shape, what)
        self._tensors[name] = _Tensor(name, type, shape[::-1], n_bytes, produce)

    def _n_bytes(self, type: TensorType, shape: tuple[int, ...], what: str) -> int:
        as_shape(self._at(what), shape)
        last = shape[-1] if shape else 1
        if last % type.block:
            raise self._error(
                f"{what}: rows of {type.name} must be a multiple of {type.block} elements,"
                f" got {last}"
            )
        n = 1
        for size in shape:
            n *= size
        return type.row_bytes(n)

    def _all_keys(self) -> dict[str, bytes]:
        """What was added, and the keys that follow from the tensors."""
        keys = dict(self._keys)
        if self.alignment != c.DEFAULT_ALIGNMENT or c.KEY_ALIGNMENT in keys:
            keys[c.KEY_ALIGNMENT] = encode_value(self.alignment, ValueType.U32.label)
        types = [tensor.type for tensor in self._tensors.values()]
        if any(type.block > 1 for type in types):
            version = encode_value(c.QUANTIZATION_VERSION, ValueType.U32.label)
            keys.setdefault(c.KEY_QUANTIZATION_VERSION, version)
        if any(type.id == c.FP8_TYPE_ID for type in types):
            keys[c.KEY_FP8_VERSION] = encode_value(c.FP8_VERSION, ValueType.U32.label)
            keys[c.KEY_FP8_LAYOUT] = encode_value(c.FP8_LAYOUT, ValueType.STRING.label)
        else:
            for key in _MARKER_KEYS:
                keys.pop(key, None)
        return keys

    def _header(self) -> bytes:
        keys = self._all_keys()
        parts = [c.MAGIC, struct.pack("<IQQ", c.VERSION, len(self._tensors), len(keys))]
        for key, encoded in keys.items():
            parts += [encode_string(key), encoded]
        offset = 0
        for tensor in self._tensors.values():
            ne = tensor.ne
            parts += [
                encode_string(tensor.name),
                struct.pack(f"<I{len(ne)}q", len(ne), *ne),
                struct.pack("<IQ", tensor.type.id, offset),
            ]
            offset += c.pad(tensor.n_bytes, self.alignment)
        return b"".join(parts)

    def _write_to(self, file: BinaryIO) -> None:
        header = self._header()
        file.write(header)
        _pad_to(file, len(header), self.alignment)
        for tensor in self._tensors.values():
            data = tensor.produce()
            if data.size != tensor.n_bytes:
                raise self._error(
                    f"tensor {quote(tensor.name)}: {data.size} bytes were made for"
                    f" {tensor.n_bytes}; was the array changed?"
                )
            file.write(data.data)
            _pad_to(file, tensor.n_bytes, self.alignment)
        file.truncate()  # to where the last padding ends


def _pad_to(file: BinaryIO, n_bytes: int, alignment: int) -> None:
    """Step over what n_bytes lack to a multiple of the alignment: zeros, or a gap that reads so."""
    gap = c.pad(n_bytes, alignment) - n_bytes
    if gap > _WRITTEN_PAD:
        file.seek(gap, os.SEEK_CUR)
    else:
        file.write(bytes(gap))


def _sync_folder(folder: str) -> None:
    """Make the rename last through a power cut, where folders can be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
