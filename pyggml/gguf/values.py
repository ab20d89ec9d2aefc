"""Metadata values to bytes: exact types, integers never wrapped, floats never overflowing.

Used by the writer. Errors here are plain texts, of a ValueError or, of masked arrays, a DTypeError;
the writer adds file and key.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyggml.errors import DTypeError
from pyggml.gguf import constants as c
from pyggml.gguf.arguments import MASKED, as_items, has_memory, show
from pyggml.gguf.constants import ValueType

_FLOATS: Final = (ValueType.F32, ValueType.F64)
_BOOLS: Final = (bool, np.bool_)


def encode_string(text: str) -> bytes:
    """Length and UTF-8 bytes of a string.

    Raises:
        ValueError: the text holds a lone surrogate.
    """
    data = str.__str__(text).encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def encode_value(value: Any, value_type: str) -> bytes:
    """Type number and bytes of a value; `value_type` as `type` in `GGUFWriter.add`.

    Raises:
        ValueError: the type is not known or the value is not of that type.
        DTypeError: the value is a masked array.
    """
    is_array = value_type.endswith("[]")
    name = value_type.removesuffix("[]")
    if name not in c.VALUE_TYPE_BY_NAME or name == ValueType.ARRAY.label:
        raise ValueError(f"metadata type {show(value_type)} is not known")
    kind = c.VALUE_TYPE_BY_NAME[name]
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(MASKED)
    if not is_array:
        return struct.pack("<I", kind) + _encode_scalar(value, kind)
    if isinstance(value, (str, bytes, Mapping, set, frozenset)):
        raise ValueError(f"must be a sequence of {kind.label}, got {show(value)}")
    if has_memory(value) and kind is not ValueType.STRING:
        count, data = _encode_array(value, kind)
    else:
        count, data = _encode_items(as_items(value), kind)
    return struct.pack("<IIQ", ValueType.ARRAY, kind, count) + data


def _encode_scalar(value: Any, kind: ValueType) -> bytes:
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(MASKED)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if kind is ValueType.STRING:
        if not isinstance(value, str):
            raise ValueError(f"must be a str, got {show(value)}")
        return encode_string(value)
    if isinstance(value, _BOOLS) != (kind is ValueType.BOOL):
        raise ValueError(f"must be of type {kind.label}, got {show(value)}")
    if kind is ValueType.BOOL:
        return bytes([bool(value)])
    try:
        number = _as_float(value) if kind in _FLOATS else operator.index(value)
        return struct.pack(c.VALUE_FORMATS[kind], number)
    except TypeError:
        raise ValueError(f"must be of type {kind.label}, got {show(value)}") from None
    except (OverflowError, struct.error):
        raise ValueError(f"does not fit {kind.label}: {show(value)}") from None


def _as_float(value: Any) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError  # float() would also take text
    if isinstance(value, np.timedelta64):
        raise TypeError  # to numpy it is an integer
    number = float(value)
    if np.isinf(number) and value != number:
        raise OverflowError  # of a longdouble
    return number


def _encode_items(items: list[Any], kind: ValueType) -> tuple[int, bytes]:
    types = set(map(type, items))
    plain = {int, float} if kind in _FLOATS else {int}
    if types <= plain and kind not in {ValueType.BOOL, ValueType.STRING}:
        try:
            return len(items), struct.pack(f"<{len(items)}{c.VALUE_FORMATS[kind][1]}", *items)
        except (OverflowError, struct.error):
            pass  # below says which element it was
    parts = []
    for i, item in enumerate(items):
        try:
            parts.append(_encode_scalar(item, kind))
        except ValueError as error:
            raise ValueError(f"element {i}: {error}") from error
    return len(items), b"".join(parts)


def _encode_array(values: Any, kind: ValueType) -> tuple[int, bytes]:
    """The elements of what has memory of its own, without a Python object for each."""
    try:
        array = np.asarray(values)
    except (TypeError, BufferError) as error:
        raise ValueError(f"must be a sequence of {kind.label}: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"must be a flat sequence, got shape {array.shape}")
    if array.size > c.MAX_ARRAY_ELEMENTS:
        raise ValueError(f"at most {c.MAX_ARRAY_ELEMENTS} elements are allowed, got {array.size}")
    if array.size == 0:
        return 0, b""
    wanted = "b" if kind is ValueType.BOOL else "fiu" if kind in _FLOATS else "iu"
    if array.dtype.kind not in wanted:
        raise ValueError(f"must hold {kind.label} values, got dtype {array.dtype}")
    out = _converted(array, kind)
    return array.size, out.tobytes()


def _converted(array: npt.NDArray[Any], kind: ValueType) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        out = array.astype(c.VALUE_DTYPES[kind])
    if kind in _FLOATS:
        fits = bool(np.all(np.isfinite(out) | ~np.isfinite(array)))
    else:
        fits = bool(np.all(out == array))
    if not fits:
        raise ValueError(f"holds values that do not fit {kind.label}")
    return out
