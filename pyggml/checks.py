"""Arguments that are plain numbers and names: taken as they are, or refused by name."""

from __future__ import annotations

import operator
from itertools import islice
from typing import Any

import numpy as np

from pyggml.errors import ParameterError, ShapeError

_SHOWN = 80  # characters of a value in a message


def shown(value: Any) -> str:
    """A value as messages show it: on one line, short, and whatever its repr does."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of the caller's own type, or an integer of more digits than Python prints
        if isinstance(value, int):
            return f"an integer of {value.bit_length()} bits"
        return f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


def as_int(what: str, value: Any) -> int:
    """An integer of Python or numpy; errors begin with `what`. True and False are none."""
    if isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{what}: {shown(value)} is not an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise ParameterError(f"{what}: {shown(value)} is not an integer") from None


def as_axis(what: str, axis: Any, ndim: int) -> int:
    """One axis of ndim, counted from the start."""
    number = as_int(f"{what}: axis", axis)
    if not -ndim <= number < ndim:
        raise ShapeError(f"{what}: axis {shown(number)} is outside the {ndim} axes of the operand")
    return number % ndim


def as_axes(what: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that numpy's `axis` names, an integer or a tuple of them; None is all."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = tuple(as_axis(what, a, ndim) for a in axes)
    if len(set(places)) != len(places):
        raise ShapeError(f"{what}: an axis is given twice in {shown(axis)}")
    return places


def as_bool(what: str, value: Any) -> bool:
    """True or False, 1 or 0."""
    if not isinstance(value, (np.bool_, int, np.integer)) or value not in (0, 1):
        raise ParameterError(f"{what}: True or False expected, got {shown(value)}")
    return bool(value)


def as_name(what: str, name: Any, most: int | None = None) -> str:
    """A name that messages show, of at most so many bytes."""
    if not isinstance(name, str):
        raise ParameterError(f"{what}: the name {shown(name)} is no string")
    plain = str.__str__(name)  # C takes no subclasses
    try:
        size = len(plain.encode())
    except UnicodeEncodeError:
        raise ParameterError(f"{what}: the name {shown(name)} holds half a character") from None
    if most is not None and size > most:
        raise ParameterError(f"{what}: the name {shown(name)} passes {most} bytes")
    return plain


def first_of(values: Any, most: int) -> list[Any] | None:
    """The elements of a sequence, of one that is longer than `most` (and maybe endless) one more
    than that; None for what is no sequence.
    """
    try:
        found = None if isinstance(values, (str, bytes)) else iter(values)
    except TypeError:  # a 0-d array is an Iterable, and has no iterator
        found = None
    return None if found is None else list(islice(found, most + 1))


def as_ints(what: str, values: Any, most: int) -> list[int]:
    """A sequence of integers, at most one more than `most`; errors begin with `what`."""
    numbers = first_of(values, most)
    if numbers is None:
        raise ParameterError(f"{what}: a sequence of integers expected, got {shown(values)}")
    return [as_int(what, n) for n in numbers]
