"""Metadata values to bytes: exact types, integers never wrapped, floats never overflowing.

Used by the writer. Errors here are plain ValueError texts; the writer adds file and key.
"""

from __future__ import annotations

import operator
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.gguf import constants as c
from pyggml.gguf.constants import ValueType

_FLOATS = (ValueType.F32, ValueType.F64)


def encode_string(text: str) -> bytes:
    """Length and UTF-8 bytes of a string.

    Raises:
        ValueError: the text holds a lone surrogate.
    """
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def encode_value(value: Any, value_type: str) -> bytes:
    """Type number and bytes of a value; `value_type` as `type` in `GGUFWriter.add`.

    Raises:
        ValueError: the type is not known or the value is not of that type.
    """
    is_array = value_type.endswith("[]")
    name = value_type.removesuffix("[]")
    if name not in c.VALUE_TYPE_BY_NAME or name == ValueType.ARRAY.label:
        raise ValueError(f"metadata type {value_type!r} is not known")
    kind = c.VALUE_TYPE_BY_NAME[name]
    if not is_array:
        return struct.pack("<I", kind) + _encode_scalar(value, kind)
    if kind is ValueType.STRING:
        count, data = _encode_strings(value)
    else:
        count, data = _encode_numbers(value, kind)
    return struct.pack("<IIQ", ValueType.ARRAY, kind, count) + data


def _encode_scalar(value: Any, kind: ValueType) -> bytes:
    if kind is ValueType.STRING:
        if not isinstance(value, str):
            raise ValueError(f"must be a str, got {value!r:.80}")
        return encode_string(value)
    is_bool = isinstance(value, (bool, np.bool_))
    if is_bool != (kind is ValueType.BOOL):
        raise ValueError(f"must be of type {kind.label}, got {value!r:.80}")
    try:
        if kind in _FLOATS:
            if not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError  # float() would also take text
            return struct.pack(c.VALUE_FORMATS[kind], float(value))
        return struct.pack(c.VALUE_FORMATS[kind], operator.index(bool(value) if is_bool else value))
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise ValueError(f"does not fit {kind.label}: {value!r:.80}") from error


def _encode_strings(values: Any) -> tuple[int, bytes]:
    if isinstance(values, (str, bytes)):
        raise ValueError(f"must be a sequence of str, got {values!r:.80}")
    items = list(values)
    for item in items:
        if not isinstance(item, str):
            raise ValueError(f"must hold only str, got {item!r:.80}")
    return len(items), b"".join(map(encode_string, items))


def _as_array(values: Any, kind: ValueType) -> npt.NDArray[Any]:
    """As numpy has it, but for integers of which some pass int64: numpy makes those float64."""
    array = np.asarray(values)
    if kind in _FLOATS or isinstance(values, np.ndarray) or array.dtype.kind not in {"f", "O"}:
        return array
    items = list(values)
    if not items or not all(type(item) is int for item in items):
        return array
    try:
        return np.array(items, np.int64 if min(items) < 0 else np.uint64)
    except OverflowError:
        raise ValueError(f"holds values that do not fit {kind.label}") from None


def _encode_numbers(values: Any, kind: ValueType) -> tuple[int, bytes]:
    array = _as_array(values, kind)
    if array.ndim != 1:
        raise ValueError(f"must be a flat sequence, got shape {array.shape}")
    dtype = np.dtype(c.VALUE_DTYPES[kind])
    if array.size:
        wanted = "b" if kind is ValueType.BOOL else "fiu" if kind in _FLOATS else "iu"
        if array.dtype.kind not in wanted:
            raise ValueError(f"must hold {kind.label} values, got dtype {array.dtype}")
    with np.errstate(over="ignore"):
        out = array.astype(dtype)
    if kind in _FLOATS:
        fits = bool(np.all(np.isfinite(out) | ~np.isfinite(array)))
    else:
        fits = bool(np.all(out == array))
    if not fits:
        raise ValueError(f"holds values that do not fit {kind.label}")
    return array.size, out.tobytes()
