"""What each argument of the writer takes, and what it refuses by name."""

from __future__ import annotations

import array
import enum
import itertools
import math
import mmap
import tracemalloc
from collections import UserList, deque
from pathlib import Path

import numpy as np
import pytest
from hostile import save
from odd import (
    BAD,
    HUGE,
    MASKED,
    Endless,
    Lying,
    Short,
    Silent,
    Text,
    closed_view,
    deep_list,
    opened,
    writer,
)

from pyggml.errors import DTypeError, GGUFError, GraphError, ParameterError
from pyggml.gguf import GGUFFile, GGUFWriter

# masked arrays


@pytest.mark.parametrize(
    "masked",
    [
        MASKED,
        np.ma.array([1, 2]),
        np.ma.array(3, mask=True),
        np.ma.masked,
        np.ma.array([[1.0, 2.0]], mask=[[0, 1]]),
        np.ma.array(np.zeros(4, np.uint8), mask=[0, 1, 0, 0]),
    ],
    ids=str,
)
def test_masked_arrays_are_refused_everywhere(tmp_path, masked):
    made = writer(tmp_path)
    for call, what in (
        (lambda: made.add_tensor("t", masked), "tensor 't'"),
        (lambda: made.add_tensor("t", [masked, masked]), "tensor 't'"),
        (lambda: made.add_tensor("t", ([masked],)), "tensor 't'"),
        (lambda: made.add_raw_tensor("t", masked, (1,), "f32"), "tensor 't'"),
        (lambda: made.add("k", masked, "f32[]"), "key 'k'"),
        (lambda: made.add("k", masked, "i64[]"), "key 'k'"),
        (lambda: made.add("k", masked, "string[]"), "key 'k'"),
        (lambda: made.add("k", masked, "i32"), "key 'k'"),
        (lambda: made.add("k", [1, masked], "i32[]"), "key 'k'"),
    ):
        with pytest.raises(DTypeError, match=rf"m\.gguf': {what}: a masked array .*filled"):
            call()


# raw bytes and shapes


def mapped(folder: Path) -> mmap.mmap:
    with open(save(folder, bytes(range(4)), "raw"), "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda b: memoryview(b).cast("c"),
        lambda b: memoryview(bytes(x for y in b for x in (y, 9)))[::2],
        lambda b: memoryview(b).cast("B", (2, 2)),
        lambda b: array.array("B", b),
        lambda b: np.frombuffer(b, np.uint8),
        lambda b: np.frombuffer(b, np.uint8).reshape(2, 2),
        lambda b: np.repeat(np.frombuffer(b, np.uint8), 2)[::2],
    ],
)
def test_raw_takes_every_buffer_of_bytes(tmp_path, make):
    with writer(tmp_path) as made:
        made.add_raw_tensor("t", make(bytes(range(4))), 1, "f32")
        made.add_raw_tensor("map", mapped(tmp_path), (4,), "i8")
    for tensor in GGUFFile(tmp_path / "m.gguf").tensors.values():
        assert tensor.raw.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("raw", "error", "words"),
    [
        (None, ParameterError, "raw must be bytes or another object with a buffer, got None"),
        ("str", ParameterError, "got 'str'"),
        (np.str_("str"), (ParameterError, GGUFError), "raw"),
        (HUGE, ParameterError, "got an integer of 16610 bits"),
        ([0, 0, 0, 0], ParameterError, "raw must be bytes"),
        (closed_view(), ParameterError, "raw must be bytes"),
        (array.array("f", [1]), GGUFError, "must be uint8, got float32"),
        (memoryview(np.ones(1, np.float32)), GGUFError, "must be uint8, got float32"),
        (np.ones(4, np.int8), GGUFError, "must be uint8, got int8"),
        (np.array([None]), GGUFError, "must be uint8, got object"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_raw_that_is_no_bytes(tmp_path, raw, error, words):
    with pytest.raises(error, match=rf"m\.gguf': tensor 't': .*{words}"):
        writer(tmp_path).add_raw_tensor("t", raw, (1,), "f32")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        (32, (32,)),
        (np.int64(32), (32,)),
        (np.array(32), (32,)),
        ([4, 8], (4, 8)),
        (np.array([4, 8]), (4, 8)),
        (iter((2, 16)), (2, 16)),
        ((np.uint8(32),), (32,)),
    ],
    ids=repr,
)
def test_shapes_that_are_taken(tmp_path, shape, axes):
    with writer(tmp_path) as made:
        made.add_raw_tensor("t", bytes(32), shape, "i8")
    assert GGUFFile(tmp_path / "m.gguf").tensors["t"].shape == axes


@pytest.mark.parametrize(
    ("shape", "error", "words"),
    [
        ((32.0,), ParameterError, "shape: 32.0 is not an integer"),
        (32.0, ParameterError, "shape: 32.0 is not an integer"),
        (np.array(32.0), ParameterError, "shape: .* is not an integer"),
        (np.array([32.0]), ParameterError, "shape: .* is not an integer"),
        (None, ParameterError, "shape: .* got None"),
        (("32",), ParameterError, "shape: '32' is not an integer"),
        ("32", ParameterError, "shape: .* got '32'"),
        (b" ", ParameterError, "shape: .* got b' '"),
        (True, ParameterError, "shape: True is not an integer"),
        ((True, 32), ParameterError, "shape: True is not an integer"),
        (np.ones((1, 1), int), ParameterError, "shape: .* is not an integer|32 bytes"),
        (Endless(), GGUFError, "at most 4 dimensions"),
        (0, GGUFError, "all positive"),
        ((-1, -32), GGUFError, "all positive"),
        (2**63, GGUFError, "passes 63 bits: 9223372036854775808"),
        ((1, HUGE), GGUFError, "passes 63 bits: an integer of 16610 bits"),
        ((2**62, 2**62, 2**62), GGUFError, "bytes, got 32"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_shapes_that_are_refused(tmp_path, shape, error, words):
    with pytest.raises((error, GGUFError), match=rf"m\.gguf': tensor 't': .*{words}"):
        writer(tmp_path).add_raw_tensor("t", bytes(32), shape, "i8")


# keys, names, types


@pytest.mark.parametrize("bad", [None, 5, b"k", HUGE, ["k"], np.array("k"), Silent()], ids=type)
def test_keys_names_and_types_that_are_no_strings(tmp_path, bad):
    made = writer(tmp_path)
    one = np.ones(1, np.float32)
    for call, words in (
        (lambda: made.add(bad, 1, "u32"), "key .* is no string"),
        (lambda: made.add("k", 1, bad), "key 'k': type .* is no string"),
        (lambda: made.add_tensor(bad, one), "tensor name .* is no string"),
        (lambda: made.add_raw_tensor(bad, bytes(4), 1, "f32"), "tensor name .* is no string"),
        (
            lambda: made.add_raw_tensor("t", bytes(4), 1, bad),
            "tensor 't': tensor type .* is no string",
        ),
    ):
        with pytest.raises(ParameterError, match=rf"m\.gguf': {words}"):
            call()
    if bad is not None:
        with pytest.raises(ParameterError, match=r"'t': tensor type .* is no string"):
            made.add_tensor("t", one, bad)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", Text("\udc80")], ids=ascii)
def test_half_characters_are_refused_by_name(tmp_path, text):
    made = writer(tmp_path)
    one = np.ones(1, np.float32)
    for call, words in (
        (lambda: made.add(text, 1, "u32"), r"key '.*\\ud.*' cannot be written as UTF-8"),
        (lambda: made.add("k", text, "string"), r"key 'k': .*\\ud"),
        (lambda: made.add("k", ["a", text], "string[]"), r"key 'k': element 1: .*\\ud"),
        (lambda: made.add("k", 1, text), r"key 'k': metadata type '.*\\ud.*' is not known"),
        (lambda: made.add_tensor(text, one), r"tensor name '.*\\ud.*' cannot be written"),
        (
            lambda: made.add_tensor("t", one, text),
            r"tensor 't': tensor type '.*\\ud.*' is not known",
        ),
        (lambda: GGUFWriter(made.path, text), r"key 'general.architecture': .*\\ud"),
        (lambda: GGUFWriter(made.path, file_type=text), r"file_type '.*\\ud.*' is not known"),
    ):
        with pytest.raises(GGUFError, match=rf"m\.gguf': {words}"):
            call()


@pytest.mark.parametrize("kind", [Text, np.str_, lambda s: enum.StrEnum("E", {"A": s}).A])
def test_str_subclasses_are_plain_strings(tmp_path, kind):
    path = str(tmp_path / "m.gguf")
    with GGUFWriter(kind(path), kind("llama"), file_type=kind("f16")) as made:
        made.add(kind("k"), kind("value"), kind("string"))
        made.add(kind("l"), [kind("a"), "b"], kind("string[]"))
        made.add_tensor(kind("t"), np.ones(1, np.float32), kind("f16"))
        made.add_raw_tensor(kind("raw"), bytes(2), 1, kind("f16"))
        with pytest.raises(GGUFError, match="sets this key itself"):
            made.add(kind("general.alignment"), 32, "u32")
        with pytest.raises(GGUFError, match="key 'k' is there already"):
            made.add(kind("k"), 1, "u32")
        assert type(made.path) is str
    with GGUFFile(kind(path)) as file:
        assert file.metadata[kind("k")] == "value"
        assert file.metadata["l"] == ["a", "b"]
        assert file.metadata["general.file_type"] == 1
        assert file.metadata_type(kind("k")) == "string"
        assert list(file.tensors) == ["t", "raw"]
    with GGUFFile(tmp_path / "m.gguf") as file, GGUFWriter(tmp_path / "copy.gguf") as copy:
        copy.copy_metadata(file, skip=[kind("k")])
        copy.copy_tensor(file.tensors["t"], kind("new"))
    with GGUFFile(tmp_path / "copy.gguf") as file:
        assert "k" not in file.metadata
        assert list(file.tensors) == ["new"]


def test_empty_names_and_types_are_no_defaults(tmp_path):
    made = writer(tmp_path)
    tensor = opened(tmp_path).tensors["t"]
    with pytest.raises(GGUFError, match="names must have 1 to 63 bytes"):
        made.copy_tensor(tensor, "")
    with pytest.raises(GGUFError, match="tensor 't': tensor type '' is not known"):
        made.add_tensor("t", np.ones(1, np.float32), "")


# values


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (1.5, "u32[]", "must be a sequence, got 1.5"),
        (None, "f32[]", "must be a sequence, got None"),
        (object(), "string[]", "must be a sequence, got <object"),
        ([True, 3], "u32[]", "element 0: must be of type u32, got True"),
        ([3, np.bool_(True)], "i64[]", "element 1: must be of type i64, got np.True_"),
        ([0.5, True], "f32[]", "element 1: must be of type f32, got True"),
        ([True, 1], "bool[]", "element 1: must be of type bool, got 1"),
        ([1, 2.0], "u32[]", "element 1: must be of type u32, got 2.0"),
        ([1, "2"], "f64[]", "element 1: must be of type f64, got '2'"),
        ([np.array(True), 1], "u32[]", "element 0: must be of type u32, got np.True_"),
        ([np.timedelta64(3)], "f32[]", "element 0: must be of type f32"),
        (np.timedelta64(3), "f64", "must be of type f64"),
        ([0, HUGE], "u32[]", "element 1: does not fit u32: an integer of 16610 bits"),
        ([0.5, HUGE], "f64[]", "element 1: does not fit f64: an integer of 16610 bits"),
        (HUGE, "u64", "does not fit u64: an integer of 16610 bits"),
        (-HUGE, "f32", "does not fit f32: an integer of 16610 bits"),
        (HUGE, "string", "must be a str, got an integer of 16610 bits"),
        (np.longdouble("1e4000"), "f64", "does not fit f64"),
        ([np.longdouble("1e4000")], "f32[]", "element 0: does not fit f32"),
        ({"a": 1}, "string[]", "must be a sequence of string, got {'a': 1}"),
        ({1, 2}, "u32[]", "must be a sequence of u32"),
        (b"abc", "u8[]", "must be a sequence of u8, got b'abc'"),
        ((x for x in (1, 2)), "u32[]", "must be a sequence, got <generator"),
        (itertools.count(), "u32[]", r"must be a sequence, got count\(0\)"),
        (itertools.repeat("a"), "string[]", r"must be a sequence, got repeat\('a'\)"),
        (Lying(), "u32[]", "got one of length 3 that holds more"),
        (Lying(), "string[]", "got one of length 3 that holds more"),
        (Lying(2**62), "f32[]", "at most 1073741824 elements are allowed"),
        (Lying(-1), "f32[]", "must be a sequence"),
        (Short([1, 2]), "u32[]", "got one of length 3 that holds only 2"),
        (range(2**31), "u32[]", "at most 1073741824 elements are allowed, got 2147483648"),
        (np.broadcast_to(np.uint8(1), 2**31), "u8[]", "at most 1073741824 elements"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else v[:20],
)
def test_values_that_are_refused(tmp_path, value, kind, words):
    with pytest.raises(GGUFError, match=rf"m\.gguf': key 'some\.key': .*{words}"):
        writer(tmp_path).add("some.key", value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (range(3), "u8[]", [0, 1, 2]),
        (deque([1, 2]), "u32[]", [1, 2]),
        (UserList([1, 2.5]), "f32[]", [1, 2.5]),
        (array.array("i", [1, -2]), "i32[]", [1, -2]),
        (bytearray(b"ab"), "u8[]", [97, 98]),
        (memoryview(b"ab"), "u16[]", [97, 98]),
        ([np.int8(-1), 2], "i16[]", [-1, 2]),
        ([np.array(1), 2], "u32[]", [1, 2]),
        ([np.float32(0.5), np.float64(2), 3], "f64[]", [0.5, 2, 3]),
        ([2**64, 1], "f64[]", [2.0**64, 1]),
        ([math.inf, -math.inf], "f32[]", [math.inf, -math.inf]),
        ([np.bool_(True), False], "bool[]", [True, False]),
        (np.array(["a", "b"]), "string[]", ["a", "b"]),
        ({"a": 1, "b": 2}.keys(), "string[]", ["a", "b"]),
        (np.arange(3, dtype=">i4"), "i32[]", [0, 1, 2]),
        (np.zeros(0, object), "f32[]", []),
        (np.zeros(0, "U1"), "u32[]", []),
    ],
    ids=lambda v: type(v).__name__,
)
def test_sequences_that_are_taken(tmp_path, value, kind, stored):
    with writer(tmp_path) as made:
        made.add("k", value, kind)
    got = GGUFFile(tmp_path / "m.gguf").metadata["k"]
    assert (got if kind == "string[]" else got.tolist()) == stored


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([[1.0], [1.0, 2.0]], DTypeError, "list is no array"),
        (Lying(), DTypeError, "Lying is no array: must be a sequence, got one of length 3"),
        ([1.0, [Lying()]], DTypeError, "holds more"),
        (Short([1.0]), DTypeError, "holds only 1"),
        (closed_view(), GGUFError, "no tensor type has dtype object"),
        (BAD["block tensor"](), DTypeError, "q8_0 packs 32 elements"),
        (BAD["node"](), GraphError, "a node has no values"),
        (deep_list(), GGUFError, "at most 4 dimensions, got deeper lists"),
        (Endless(), GGUFError, "no tensor type has dtype object"),
        ("abc", GGUFError, "no tensor type has dtype <U3"),
        ([HUGE], GGUFError, "no tensor type has dtype object"),
        (np.array(["a"], np.dtypes.StringDType()), GGUFError, "no tensor type has dtype"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_arrays_that_are_none(tmp_path, value, error, words):
    with pytest.raises(error, match=rf"m\.gguf': tensor 't': .*{words}"):
        writer(tmp_path).add_tensor("t", value)


# alignment


@pytest.mark.parametrize(
    ("alignment", "words"),
    [
        ("32", "alignment: '32' is not an integer"),
        (32.0, "alignment: 32.0 is not an integer"),
        (True, "alignment: True is not an integer"),
        ([32], r"alignment: \[32\] is not an integer"),
        (np.array([32, 64]), "alignment: .* is not an integer"),
        (np.bool_(True), "alignment: .* is not an integer"),
        (HUGE, "power of two and at least 8, .* got an integer of 16610 bits"),
        (-HUGE, "got an integer of 16610 bits"),
        (1 << 70, "got an integer of 71 bits"),
        (1 << 32, "got 4294967296"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_alignments_that_are_none(tmp_path, alignment, words):
    with pytest.raises(ParameterError, match=rf"m\.gguf': .*{words}"):
        GGUFWriter(tmp_path / "m.gguf", alignment=alignment)


@pytest.mark.parametrize("alignment", [1 << 16, 1 << 17, 1 << 26])
def test_padding_takes_no_memory_and_reads_as_zeros(tmp_path, alignment):
    made = GGUFWriter(tmp_path / "m.gguf", "llama", alignment=np.int64(alignment))
    made.add_tensor("a", np.full(3, 7, np.uint8).view(np.int8))
    made.add_tensor("b", np.ones(2, np.float32))
    tracemalloc.start()
    try:
        made.write()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    with GGUFFile(tmp_path / "m.gguf", strict=True) as file:
        assert file.alignment == alignment
        assert file.size == 3 * alignment, "the last padding is there too"
        whole = np.frombuffer(file._source.map, np.uint8)
        assert np.count_nonzero(whole[alignment : 2 * alignment]) == 3
        assert np.count_nonzero(whole[2 * alignment :]) == 4  # two bytes of every 1.0
        assert file.tensors["a"].data.tolist() == [7, 7, 7]
        assert file.tensors["b"].data.tolist() == [1, 1]


# copies


@pytest.mark.parametrize("bad", [None, 5, "m.gguf", object(), {}, Silent()], ids=type)
def test_copies_of_what_is_no_file_and_no_tensor(tmp_path, bad):
    with pytest.raises(ParameterError, match=r"m\.gguf': copy_metadata: .* is no GGUFFile"):
        writer(tmp_path).copy_metadata(bad)
    with pytest.raises(ParameterError, match=r"m\.gguf': copy_tensor: .* is no TensorInfo"):
        writer(tmp_path).copy_tensor(bad)


@pytest.mark.parametrize(
    "skip", [None, 5, "word", b"word", [5], ["word", None], Endless(), Lying(), Short(["word"])],
    ids=type,
)  # fmt: skip
def test_skip_is_a_collection_of_keys(tmp_path, skip):
    made = writer(tmp_path)
    with pytest.raises(ParameterError, match=r"m\.gguf': copy_metadata: skip"):
        made.copy_metadata(opened(tmp_path), skip)
    for good in ({"word"}, ["word"], ("word",), {"word": 1}, {"word": 1}.keys()):
        made = writer(tmp_path)
        made.copy_metadata(opened(tmp_path), good)
        made.write()
        assert list(GGUFFile(made.path).metadata) == ["number"]
