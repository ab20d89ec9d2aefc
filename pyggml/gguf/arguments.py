"""What callers hand to the reader and the writer: taken as plain values, or refused by name.

Beside pyggml.checks: paths, shapes, raw bytes and sequences, none of which is read for ever.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Set
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyggml.checks import as_int, as_ints, shown
from pyggml.errors import DTypeError, GGUFError, ParameterError, PyggmlError
from pyggml.gguf import constants as c

MASKED: Final = "a masked array has no GGUF form; see its .filled()"

_ARRAY_METHODS: Final = ("__array__", "__array_interface__", "__array_struct__")


def show(value: Any) -> str:
    """A value as messages show it: short, and of integers past 64 bits only how long they are."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return shown(value)


def as_path(path: Any) -> str:
    """A path of str, bytes or os.PathLike as the system takes it.

    Raises:
        ParameterError: it is none of these.
        GGUFError: it holds a NUL or half a character.
    """
    try:
        text = str.__str__(os.fsdecode(path))
    except TypeError:
        raise ParameterError(f"GGUF file: {show(path)} is no path") from None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise GGUFError(f"GGUF file {show(text)}: the path holds half a character") from None
    if "\0" in text:
        raise GGUFError(f"GGUF file {show(text)}: the path holds a NUL")
    return text


def as_text(what: str, text: Any) -> str:
    """A str, of a subclass the plain one; errors begin with `what`."""
    if not isinstance(text, str):
        raise ParameterError(f"{what} {show(text)} is no string")
    return str.__str__(text)


def as_shape(what: str, shape: Any) -> tuple[int, ...]:
    """A shape as plain ints, that of one axis may be an int; errors begin with `what`.

    Raises:
        ParameterError: it is no sequence of integers.
        GGUFError: too many axes, or one that is not positive or passes 63 bits.
    """
    one = np.isscalar(shape) or (isinstance(shape, np.ndarray) and shape.ndim == 0)
    if one and not isinstance(shape, (str, bytes)):
        dims: tuple[int, ...] = (as_int(f"{what}: shape", shape),)
    else:
        dims = tuple(as_ints(f"{what}: shape", shape, c.MAX_DIMS))
    for n in dims:
        if n > c.MAX_INT64:
            raise GGUFError(f"{what}: a dimension passes 63 bits: {show(n)}")
    if len(dims) > c.MAX_DIMS or any(n <= 0 for n in dims):
        raise GGUFError(
            f"{what}: must have at most {c.MAX_DIMS} dimensions, all positive, got {show(dims)}"
        )
    return dims


def as_raw(what: str, raw: Any) -> npt.NDArray[np.uint8]:
    """The bytes of an object with a buffer, as they lie there; errors begin with `what`.

    Raises:
        ParameterError: it has no buffer.
        DTypeError: a masked array.
        GGUFError: its elements are not bytes.
    """
    if isinstance(raw, np.ma.MaskedArray):
        raise DTypeError(f"{what}: {MASKED}")
    try:
        # without the memoryview, numpy would make an array of anything
        data = np.asarray(raw if isinstance(raw, np.ndarray) else _memory(raw))
    except (TypeError, ValueError, BufferError):  # ValueError: of a closed buffer
        raise ParameterError(
            f"{what}: raw must be bytes or another object with a buffer, got {show(raw)}"
        ) from None
    if data.dtype != np.uint8:
        raise GGUFError(f"{what}: raw bytes must be uint8, got {data.dtype}")
    return data


def _memory(value: Any) -> memoryview:
    view = memoryview(value)
    return view.cast("B") if view.format == "c" else view


def as_array(what: str, array: Any) -> npt.NDArray[Any]:
    """What numpy makes of a tensor's values; errors begin with `what`.

    Raises:
        DTypeError: no array can be made of it, or a masked one is in it.
        GGUFError: lists in lists, deeper than a tensor has dimensions.
        GraphError: a node, which has no values.
    """
    try:
        return np.asarray(_nested(array, c.MAX_DIMS))
    except PyggmlError as error:  # of a Tensor's own too
        raise type(error)(f"{what}: {error}") from None
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        raise DTypeError(f"{what}: {type(array).__name__} is no array: {error}") from None


def _nested(value: Any, depth: int) -> Any:
    """Sequences as lists, because numpy reads those that lie about their length for ever."""
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(MASKED)
    if isinstance(value, str):
        return str.__str__(value)
    if has_memory(value) or isinstance(value, (bytes, Mapping, Set)):
        return value
    if not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        return value
    if depth == 0:
        raise GGUFError(f"must have at most {c.MAX_DIMS} dimensions, got deeper lists")
    items = as_items(value)
    if set(map(type, items)) <= {int, float}:
        return items
    return [_nested(item, depth - 1) for item in items]


def has_memory(value: Any) -> bool:
    """Whether numpy takes an array from the value itself, and does not iterate over it."""
    if isinstance(value, (list, tuple, int, float, str)):
        return False
    if any(hasattr(value, name) for name in _ARRAY_METHODS):
        return True
    try:
        memoryview(value)
    except TypeError:
        return False
    except (ValueError, BufferError):  # it has a buffer, but a closed one
        return True
    return True


def as_items(values: Any) -> list[Any]:
    """The elements of a sequence, of as many as it says it has.

    Raises:
        ValueError: it has no length, a false one, or more elements than a file may hold.
    """
    try:
        n, elements = len(values), iter(values)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"must be a sequence, got {show(values)}") from None
    if n > c.MAX_ARRAY_ELEMENTS:
        raise ValueError(f"at most {c.MAX_ARRAY_ELEMENTS} elements are allowed, got {n}")
    items = list(islice(elements, n + 1))
    if len(items) != n:
        found = "more" if len(items) > n else f"only {len(items)}"
        raise ValueError(f"must be a sequence, got one of length {n} that holds {found}")
    return items


def as_keys(what: str, keys: Any) -> frozenset[str]:
    """A collection of keys; errors begin with `what`.

    Raises:
        ParameterError: it is none, or a single string.
    """
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Collection):
        raise ParameterError(f"{what} must be a collection of keys, got {show(keys)}")
    try:
        return frozenset(as_text(f"{what}: key", key) for key in as_items(keys))
    except PyggmlError:
        raise
    except ValueError as error:
        raise ParameterError(f"{what}: {error}") from None
