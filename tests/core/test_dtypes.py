"""Dtypes: the table's rows, and what names a dtype."""

from __future__ import annotations

import copy
import operator
import pickle
import re

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg
from pyggml import _core, dtypes
from pyggml.dtypes import DTYPES

every_dtype = pytest.mark.parametrize("d", DTYPES, ids=repr)


@every_dtype
def test_is_public(d) -> None:
    add = "add it to pyggml/dtypes.py, and to the imports and __all__ of pyggml/__init__.py"
    assert getattr(pg, d.name, None) is d, f"there is no pyggml.{d.name}: {add}"
    assert d.name in pg.__all__, f"{d.name} is not public: {add}"
    assert getattr(dtypes, d.name, None) is d
    assert repr(d) == f"pyggml.{d.name}"
    assert d.name == d.name.lower()


def test_numbers_and_names() -> None:
    assert [d.id for d in DTYPES] == list(range(len(DTYPES)))
    assert len({d.name for d in DTYPES}) == len(DTYPES)
    known = [d.gguf_id for d in DTYPES if d.gguf_id is not None]
    assert len(set(known)) == len(known)


@every_dtype
def test_numpy_agrees(d) -> None:
    """A scalar dtype is numpy's: same bytes, same kind; the name counts its bits."""
    if d.is_block:
        assert d.numpy is None
        assert d.block > 1
        return
    assert (d.block, d.itemsize) == (1, d.numpy.itemsize)
    assert (d.numpy.kind == "i") == d.is_integer
    if d.is_integer:
        assert d.name == f"i{8 * d.itemsize}"
    else:
        info = ml_dtypes.finfo(d.numpy)
        assert str(info.bits) in re.findall(r"\d+", d.name)
        if "_e" in d.name:
            assert d.name == f"f8_e{7 - info.nmant}m{info.nmant}"


def test_classes() -> None:
    assert [d.name for d in DTYPES if d.is_storage] == ["f64", "i8", "i16"]
    assert {d.name for d in DTYPES if d.is_integer} == {"i8", "i16", "i32", "i64"}
    for d in DTYPES:  # one of the three
        assert d.is_float + d.is_index + d.is_storage == 1
        assert not d.is_index or d.is_integer


@every_dtype
def test_flags_say_what_the_kernels_do(d) -> None:
    slots = set(_core.kernel_slots())
    ways = [f"{way}_{d.name}" in slots for way in ("to_f32", "dot", "mv", "from_f32")]
    if d.is_float:
        fixed = "set PYG_DT_FIXED in its row, or write its encoder"
        assert ways == [True, True, True, not d.is_fixed], f"{d.name} has slots {ways}: {fixed}"
    else:
        assert not any(ways)
        assert not d.is_fixed
    assert d.is_scaled == (d is pg.f8_e4m3)


def test_what_has_no_encoder() -> None:
    assert pg.q2_k.is_fixed
    for d in (d for d in DTYPES if d.is_fixed):
        with pytest.raises(pg.DTypeError, match=f"{d.name} has no encoder; Tensor.from_raw"):
            pg.tensor(np.zeros((2, d.block), np.float32), dtype=d)
        assert not pg.zeros((2, d.block), d).dequantize().any()
        with pytest.raises(pg.ParameterError, match="no encoder"):
            _core.from_f32(d.id, np.zeros(d.block, np.float32), bytearray(d.itemsize))


@every_dtype
def test_one_object_each(d) -> None:
    assert pg.dtype(d) is d
    assert pg.dtype(d.name) is d
    assert pg.dtype(d.name.upper()) is d
    assert pickle.loads(pickle.dumps(d)) is d
    assert copy.deepcopy(d) is d
    if d.numpy is not None:
        assert pg.dtype(d.numpy) is d
        assert pg.dtype(d.numpy.type) is d
        assert pg.dtype(d.numpy.newbyteorder(">")) is d


def test_numpy_names() -> None:
    assert pg.dtype("float32") is pg.f32
    assert pg.dtype("<f2") is pg.f16
    assert pg.dtype("i4") is pg.i32
    assert pg.dtype(int) is pg.i64
    assert pg.dtype("f16") is pg.f16  # not numpy's 16-byte float
    assert pg.dtype("i8") is pg.i8  # not numpy's int64
    assert pg.dtype("i1") is pg.i8
    assert pg.dtype("i2") is pg.i16
    assert pg.dtype("f8") is pg.dtype(float) is pg.f64


@pytest.mark.parametrize(
    "bad",
    [
        "f9",
        "",
        "q8_k",
        "f8_e9m9",
        None,
        bool,
        complex,
        object,
        np.uint8,
        "U3",
        "(2,)f4",
        "f4,f4",
        "f4,(",
        {"names": ["a"]},
        {"names": ["a"], "formats": ["f4"], "offsets": [-1]},
        [("a", "f4")],
        [],
        3,
        1.5,
        b"f32\xff",
        "\ud800",
        ml_dtypes.float8_e4m3b11fnuz,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e4m3,
        ml_dtypes.int4,
    ],
    ids=repr,
)
def test_others_are_refused(bad) -> None:
    with pytest.raises(pg.DTypeError, match="is not a dtype of pyggml; there are f32, f16, bf16"):
        pg.dtype(bad)


def test_row_bytes() -> None:
    assert pg.q4_1.row_bytes(96) == 60
    assert pg.bf16.row_bytes(7) == 14
    assert pg.q8_0.row_bytes(0) == 0
    assert pg.f8_e4m3.row_bytes(2**40) == 2**40
    with pytest.raises(pg.DTypeError, match="q8_0: 33 elements are not whole blocks of 32"):
        pg.q8_0.row_bytes(33)


# ---- equality ----


@every_dtype
def test_equal_to_what_stands_for_it(d) -> None:
    names = [d.name, d.name.upper()]
    spellings = names + ([d.numpy, d.numpy.type, d.numpy.name] if d.numpy is not None else [])
    for spelling in spellings:
        assert [op(d, spelling) for op in (operator.eq, operator.ne)] == [True, False]
        assert [op(spelling, d) for op in (operator.eq, operator.ne)] == [True, False]
        assert pg.dtype(spelling) is d
        for other in DTYPES:
            assert (other == spelling) == (other is d)
            assert (spelling == other) == (other is d)


def test_equal_to_nothing_else() -> None:
    things = [None, 0, 1.0, b"f32", "", "float", "bogus", "f32 ", "(", object(), [], ("f32",)]
    things += [np.float32(0), np.ones(1, np.float32).data, list, pg.Tensor, np.uint8, "f4x"]
    for thing in things:
        for d in (pg.f32, pg.q8_0):
            assert [op(d, thing) for op in (operator.eq, operator.ne)] == [False, True]
            assert [op(thing, d) for op in (operator.eq, operator.ne)] == [False, True]
    assert pg.f32 != np.dtype(">f4")  # as numpy's own
    assert pg.f32 != np.dtype([("a", "f4")])
    assert pg.i8 == "i8"  # pyggml's names count bits
    assert pg.i64 == "int64" == pg.i64
    assert operator.eq(pg.f64, float)


def test_hash() -> None:
    """Equal to its name and found by it; numpy's spellings are equal but not found, as numpy's."""
    table = {pg.f32: 1, "q8_0": 2}
    assert table["f32"] == table[pg.f32] == 1
    assert table[pg.q8_0] == 2
    assert len({pg.f32, "f32", copy.copy(pg.f32), pickle.loads(pickle.dumps(pg.f32))}) == 1
    assert len(set(DTYPES)) == len({hash(d) for d in DTYPES}) == len(DTYPES)
    assert {np.dtype("float32"): 1}.get("float32") is None  # numpy's rule, which is ours


def test_numpy_takes_a_dtype() -> None:
    for kind in DTYPES:
        if kind.numpy is None:
            assert not hasattr(kind, "dtype")
            with pytest.raises(TypeError, match=kind.name):
                np.zeros(2, kind)
        else:
            assert np.dtype(kind) == np.zeros(2, kind).dtype == kind.numpy
            assert np.ones(2).astype(kind).dtype == kind
