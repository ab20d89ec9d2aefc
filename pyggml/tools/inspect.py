"""What is in a GGUF file, as rows of text: its metadata and its tensors.

Text from a file may hold anything, terminal control sequences included; every string that leaves
this module is printable.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from pyggml.gguf import FILE_TYPES, GGUFFile, TensorInfo

_LONGEST: Final = 100  # characters of a value that are shown
_FIRST: Final = 4  # elements of an array that are shown
_FILE_TYPE_KEY: Final = "general.file_type"


@dataclass(frozen=True, slots=True)
class Key:
    """A metadata entry: its name, its exact type ("u32", "string[49152]"), its value as text."""

    name: str
    type: str
    value: str


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor: name, type, shape in numpy order, bytes, and place in the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class TypeSum:
    """All tensors of one type: how many, their elements and their bytes."""

    type: str
    tensors: int
    elements: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything `pyggml inspect` shows."""

    path: str
    version: int
    n_bytes: int
    alignment: int
    keys: tuple[Key, ...]
    tensors: tuple[TensorRow, ...]
    types: tuple[TypeSum, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as dicts and lists, for JSON."""
        return asdict(self)


def summarize(path: str | os.PathLike[str], full: bool = False) -> Summary:
    """Read a file's header; the tensors' bytes are not touched.

    Args:
        path: a GGUF file of any architecture.
        full: do not cut long values and arrays.

    Raises:
        GGUFError: the file is malformed or of a kind that is not supported.
        OSError: it cannot be opened.
    """
    with GGUFFile(path) as file:
        return Summary(
            path=printable(os.fspath(path)),
            version=file.version,
            n_bytes=file.size,
            alignment=file.alignment,
            keys=tuple(_key(file, name, full) for name in file.metadata),
            tensors=tuple(_tensor(info) for info in file.tensors.values()),
            types=_type_sums(file.tensors.values()),
        )


def printable(text: str, keep: str = "") -> str:
    """The text with every character escaped that is not printable and not in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text.encode(errors="backslashreplace").decode()
    )


def _key(file: GGUFFile, name: str, full: bool) -> Key:
    kind, count = file.metadata_type(name), file.metadata_length(name)
    if count is not None:
        kind = f"{kind.removesuffix('[]')}[{count}]"
    value = file.metadata[name]
    text = _array_text(value, full) if count is not None else _scalar_text(value, full)
    if name == _FILE_TYPE_KEY and count is None and value in FILE_TYPES:
        text += f" ({FILE_TYPES[value]})"
    return Key(printable(name), kind, text)


def _array_text(values: Any, full: bool) -> str:
    shown = values if full else values[:_FIRST]
    items = shown.tolist() if isinstance(shown, np.ndarray) else shown
    parts = [_scalar_text(item, full, quotes=True) for item in items]
    if len(parts) < len(values):
        parts.append("...")
    return f"[{', '.join(parts)}]"


def _scalar_text(value: Any, full: bool, quotes: bool = False) -> str:
    if not isinstance(value, str):
        return f"{value:.9g}" if isinstance(value, float) else str(value)
    cut = value if full or len(value) <= _LONGEST else value[:_LONGEST] + "..."
    text = printable(cut)
    return f"'{text}'" if quotes else text


def _tensor(info: TensorInfo) -> TensorRow:
    return TensorRow(
        printable(info.name), info.type.name, info.shape, info.n_bytes, info.file_offset
    )


def _type_sums(infos: Any) -> tuple[TypeSum, ...]:
    """One row a type, the one with most bytes first."""
    tensors: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    for info in infos:
        kind = info.type.name
        tensors[kind] += 1
        elements[kind] += info.n_bytes // info.type.bytes * info.type.block
        n_bytes[kind] += info.n_bytes
    return tuple(
        TypeSum(kind, tensors[kind], elements[kind], size) for kind, size in n_bytes.most_common()
    )
