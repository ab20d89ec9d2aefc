"""The tables of the format, against the independent gguf package."""

from __future__ import annotations

import gguf
import pytest

from pyggml.gguf import constants as c


def test_type_ids_names_and_sizes_equal_the_gguf_package():
    theirs = {
        int(k): (k.name.lower(), *gguf.GGML_QUANT_SIZES[k]) for k in gguf.GGMLQuantizationType
    }
    # that package counts two f32 in a q8_1 block; ggml's struct has two f16: 2 + 2 + 32 bytes
    theirs[9] = ("q8_1", 32, 36)
    ours = {t.id: (t.name, t.block, t.bytes) for t in c.TENSOR_TYPES.values()}
    # releases differ in how many of the newest ids they know; 43 is no type of theirs
    theirs |= {k: ours[k] for k in (39, 40, 41, 42, 43) if k not in theirs}
    assert ours == theirs


def test_the_newest_types():
    newest = [(t.id, t.name, t.block, t.bytes) for t in c.TENSOR_TYPES.values() if t.id > 38]
    assert newest == [
        (39, "mxfp4", 32, 17),
        (40, "nvfp4", 64, 36),
        (41, "q1_0", 128, 18),
        (42, "q2_0", 64, 18),
        (43, "f8_e4m3", 1, 1),
    ]


def test_every_id_below_44_is_either_valid_or_removed():
    assert sorted([*c.TENSOR_TYPES, *c.REMOVED_TYPE_IDS]) == list(range(44))
    assert set(c.REMOVED_TYPE_IDS) == {4, 5, 31, 32, 33, 36, 37, 38}


def test_by_name_is_the_same_table():
    assert {t.id: t for t in c.BY_NAME.values()} == c.TENSOR_TYPES
    assert all(name == t.name == name.lower() for name, t in c.BY_NAME.items())


def test_value_types_equal_the_gguf_package():
    renamed = {"u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32"}
    renamed |= {"i32": "int32", "f32": "float32", "u64": "uint64", "i64": "int64", "f64": "float64"}
    ours = {int(t): renamed.get(t.label, t.label) for t in c.ValueType}
    assert ours == {int(t): t.name.lower() for t in gguf.GGUFValueType}


def test_file_types_equal_the_gguf_package():
    theirs = {
        int(t): t.name.lower().removeprefix("mostly_").removeprefix("all_")
        for t in gguf.LlamaFileType
    }
    theirs |= {38: "mxfp4_moe", 39: "nvfp4", 40: "q1_0", 41: "q2_0", 42: "f8_e4m3"}
    assert theirs == c.FILE_TYPES
    assert c.FILE_TYPE_IDS["f8_e4m3"] == 42


@pytest.mark.parametrize("value", [8, 16, 32, 64, 4096, 1 << 31])
def test_alignments_that_are_allowed(value):
    assert c.is_alignment(value)


@pytest.mark.parametrize("value", [-8, 0, 1, 2, 3, 4, 7, 12, 24, 33, 1 << 32])
def test_alignments_that_are_not_allowed(value):
    assert not c.is_alignment(value)


def test_descriptions_of_ids():
    assert c.describe_type_id(43) == "f8_e4m3 (id 43)"
    assert "q4_2" in c.describe_type_id(4)
    assert "removed" in c.describe_type_id(4)
    assert c.describe_type_id(999) == "unknown id 999"


def test_pad_and_row_bytes():
    assert [c.pad(n, 32) for n in (0, 1, 31, 32, 33)] == [0, 32, 32, 32, 64]
    assert c.BY_NAME["q4_1"].row_bytes(64) == 40
    assert c.BY_NAME["f8_e4m3"].row_bytes(7) == 7
