"""Values that are arguments of hardly anything, for the tests of arguments."""

from __future__ import annotations

import enum
import itertools
import math
from collections import UserList
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hostile import build, info, save, string_key, u32_key

import pyggml as pg
from pyggml.gguf import GGUFFile, GGUFWriter

HUGE = 10**5000  # more digits than Python prints


class Endless:
    """Iterates for ever, and says so when it is let."""

    def __iter__(self):
        for i in itertools.count():
            assert i < 1000, "an endless iterable is read on and on"
            yield 1


class Lying(Endless):
    """A sequence of `length` elements that has no end."""

    def __init__(self, length: int = 3) -> None:
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        assert i < 1000, "a lying sequence is read on and on"
        return 1

    def __contains__(self, _):
        return True


class Short(UserList):
    """Says that it has more than it holds."""

    def __len__(self):
        return super().__len__() + 1


class Silent:
    """Cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no repr")


class Word(enum.StrEnum):
    U32 = "u32"
    NAME = "name"


class Text(str):
    """A str whose own methods are no help."""

    def __str__(self):
        raise RuntimeError("str() of a subclass")

    __hash__ = str.__hash__

    def encode(self, *_):
        raise RuntimeError("encode of a subclass")

    endswith = removesuffix = encode


def deep_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def closed_view() -> memoryview:
    view = memoryview(b"1234")
    view.release()
    return view


MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[1, 0, 0])
BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "3": lambda: 3,
    "2**70": lambda: 2**70,
    "10**5000": lambda: HUGE,
    "[10**5000]": lambda: [HUGE],
    "0.5": lambda: 0.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "1j": lambda: 1j,
    "''": lambda: "",
    "'a'": lambda: "a",
    "'32'": lambda: "32",
    "long": lambda: "x" * 100_000,
    "surrogate": lambda: "a\ud800",
    "nul": lambda: "a\0",
    "lines": lambda: "a\n\x1b[31m",
    "b''": lambda: b"",
    "bytes": lambda: b"bytes",
    "bytearray": lambda: bytearray(4),
    "memoryview": lambda: memoryview(b"1234"),
    "closed view": closed_view,
    "[]": lambda: [],
    "[None]": lambda: [None],
    "[1.5]": lambda: [1.5],
    "[True, 3]": lambda: [True, 3],
    "['a', 1]": lambda: ["a", 1],
    "['surrogate']": lambda: ["\ud800"],
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "deep": deep_list,
    "five deep": lambda: [[[[[1.0]]]]],
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "generator": lambda: (x for x in (1, 2)),
    "endless": Endless,
    "count": lambda: itertools.count(),
    "lying": Lying,
    "[lying]": lambda: [Lying()],
    "lying a lot": lambda: Lying(2**62),
    "short": lambda: Short([1.0, 2.0]),
    "range": lambda: range(2**40),
    "object": object,
    "silent": Silent,
    "class": lambda: list,
    "dtype": lambda: np.float32,
    "0-d int": lambda: np.array(3),
    "0-d float": lambda: np.array(0.5),
    "0-d bool": lambda: np.array(True),
    "0-d str": lambda: np.array("a"),
    "1-d": lambda: np.ones(2),
    "2-d": lambda: np.ones((2, 3), np.float32),
    "empty": lambda: np.ones(0, np.float32),
    "no objects": lambda: np.zeros(0, object),
    "tensor": lambda: pg.tensor(np.ones(2, np.float32)),
    "block tensor": lambda: pg.tensor(np.ones(32, np.float32), dtype="q8_0"),
    "node": lambda: pg.Graph().input("x", (2,), "f32"),
    "objects": lambda: np.array([None, "a"], object),
    "records": lambda: np.zeros(2, [("a", "f4"), ("b", "i4")]),
    "times": lambda: np.zeros(2, "m8[s]"),
    "a time": lambda: np.timedelta64(3),
    "strings": lambda: np.array(["a", "b"], np.dtypes.StringDType()),
    "view": lambda: np.broadcast_to(np.uint8(0), (2**40,)),
    "longdouble": lambda: np.longdouble("1e4000"),
    "masked": lambda: MASKED,
    "[masked]": lambda: [MASKED, MASKED],
    "masked scalar": lambda: np.ma.masked,
    "0-d masked": lambda: np.ma.array(3, mask=True),
    "masked bytes": lambda: np.ma.array(np.zeros(4, np.uint8), mask=[1, 0, 0, 0]),
    "np.str_": lambda: np.str_("a"),
    "np.uint8": lambda: np.uint8(4),
    "StrEnum": lambda: Word.U32,
    "Text": lambda: Text("text"),
}


def small_file(folder: Path, name: str = "small.gguf") -> Path:
    keys = [u32_key("number", 1), string_key("word", "w")]
    return save(folder, build(keys, [info("t", [8], 0, 0)], bytes(32)), name)


def opened(folder: Path) -> GGUFFile:
    return GGUFFile(small_file(folder))


def writer(folder: Path) -> GGUFWriter:
    return GGUFWriter(folder / "m.gguf")
