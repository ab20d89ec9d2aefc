"""Files that are right: what the reader makes of them."""

from __future__ import annotations

import gc
import os
import struct
import weakref

import gguf
import ml_dtypes
import numpy as np
import pytest
from hostile import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    array_key,
    bounded,
    build,
    info,
    key,
    save,
    string_key,
    text,
    u32_key,
)

from pyggml.errors import GGUFError
from pyggml.gguf import BY_NAME, TENSOR_TYPES, GGUFFile

# type, struct code, label, values at the ends of the range
NUMBERS = [
    (U8, "B", "u8", [0, 1, 255]),
    (I8, "b", "i8", [-128, -1, 127]),
    (U16, "H", "u16", [0, 65535]),
    (I16, "h", "i16", [-32768, 32767]),
    (U32, "I", "u32", [0, 2**32 - 1]),
    (I32, "i", "i32", [-(2**31), 2**31 - 1]),
    (F32, "f", "f32", [0.5, -1.25, float("inf")]),
    (U64, "Q", "u64", [0, 2**64 - 1]),
    (I64, "q", "i64", [-(2**63), 2**63 - 1]),
    (F64, "d", "f64", [0.1, -1e300, float("-inf")]),
]
DTYPES = {"B": "u1", "b": "i1", "H": "u2", "h": "i2", "I": "u4", "i": "i4", "f": "f4"}
DTYPES |= {"Q": "u8", "q": "i8", "d": "f8"}


@pytest.mark.parametrize("version", [2, 3])
def test_smallest_file(tmp_path, version):
    content = b"GGUF" + struct.pack("<IQQ", version, 0, 0)
    file = GGUFFile(save(tmp_path, content))
    assert (file.version, file.size, file.alignment, file.data_offset) == (version, 24, 32, 32)
    assert dict(file.metadata) == {}
    assert file.tensors == {}


@pytest.mark.parametrize(("kind", "code", "label", "values"), NUMBERS, ids=lambda v: str(v))
def test_numbers_of_every_type(tmp_path, kind, code, label, values):
    keys = [key(f"n.{i}", kind, struct.pack("<" + code, v)) for i, v in enumerate(values)]
    payload = struct.pack(f"<{len(values)}{code}", *values)
    keys += [array_key("array", kind, len(values), payload), array_key("none", kind, 0, b"")]
    with GGUFFile(save(tmp_path, build(keys))) as file:
        got = [file.metadata[f"n.{i}"] for i in range(len(values))]
        assert got == values
        assert all(type(g) is type(v) for g, v in zip(got, values, strict=True))
        assert file.metadata_type("n.0") == label
        assert file.metadata_length("n.0") is None
        assert file.metadata_type("array") == label + "[]"
        assert file.metadata_length("array") == len(values)
        array, none = file.metadata["array"], file.metadata["none"]
    assert array.dtype == np.dtype("<" + DTYPES[code])
    assert array.tolist() == values
    assert none.dtype == array.dtype
    assert none.shape == (0,)
    assert array.flags.aligned
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.setflags(write=True)


def test_bools_and_strings(tmp_path):
    words = ["", "a", "\u0120hello", "\U0001f642", "line\nbreak", "nul\0inside"]
    keys = [
        key("yes", BOOL, b"\1"),
        key("no", BOOL, b"\0"),
        array_key("flags", BOOL, 3, b"\1\0\1"),
        array_key("words", STRING, len(words), b"".join(map(text, words))),
        array_key("nothing", STRING, 0, b""),
        *[string_key(f"w.{i}", w) for i, w in enumerate(words)],
    ]
    file = GGUFFile(save(tmp_path, build(keys)))
    assert file.metadata["yes"] is True
    assert file.metadata["no"] is False
    assert file.metadata["flags"].dtype == bool
    assert file.metadata["flags"].tolist() == [True, False, True]
    assert file.metadata["words"] == words
    assert file.metadata["nothing"] == []
    assert [file.metadata[f"w.{i}"] for i in range(len(words))] == words
    assert file.metadata_type("words") == "string[]"
    assert file.metadata_length("words") == 6
    assert file.metadata_type("yes") == "bool"
    assert file.metadata_type("w.0") == "string"


def test_metadata_is_a_mapping_in_file_order(tmp_path):
    names = ["z", "a", "m.n", "\u00e4"]
    file = GGUFFile(save(tmp_path, build([u32_key(n, i) for i, n in enumerate(names)])))
    assert list(file.metadata) == names
    assert len(file.metadata) == 4
    assert file.metadata.get("z") == 0
    assert file.metadata.get("none", 7) == 7
    assert "a" in file.metadata
    assert "b" not in file.metadata
    assert 3 not in file.metadata
    for missing in (file.metadata.__getitem__, file.metadata_type, file.metadata_length):
        with pytest.raises(KeyError):
            missing("b")


def test_arrays_are_decoded_once(tmp_path):
    keys = [array_key("words", STRING, 2, text("a") + text("b"))]
    file = GGUFFile(save(tmp_path, build(keys)))
    assert file.metadata["words"] is file.metadata["words"]


def test_keys_of_the_longest_length(tmp_path):
    long_key, long_name = "k" * 65535, "t" * 63
    content = build([u32_key(long_key, 1)], [info(long_name, [1], 0, 0)], bytes(4))
    file = GGUFFile(save(tmp_path, content))
    assert file.metadata[long_key] == 1
    assert list(file.tensors) == [long_name]


PLAIN = [
    ("f32", 0, np.dtype("<f4")),
    ("f16", 1, np.dtype("<f2")),
    ("bf16", 30, np.dtype(ml_dtypes.bfloat16)),
    ("f8_e4m3", 43, np.dtype(ml_dtypes.float8_e4m3fn)),
    ("i8", 24, np.dtype("i1")),
    ("i16", 25, np.dtype("<i2")),
    ("i32", 26, np.dtype("<i4")),
    ("i64", 27, np.dtype("<i8")),
    ("f64", 28, np.dtype("<f8")),
]


@pytest.mark.parametrize(("name", "number", "dtype"), PLAIN, ids=lambda v: str(v))
def test_plain_tensors_are_views_in_numpy_order(tmp_path, name, number, dtype):
    values = np.arange(24).astype(dtype).reshape(2, 3, 4)
    raw = values.tobytes()
    content = build([], [info("t", [4, 3, 2], number, 0)], raw)
    file = GGUFFile(save(tmp_path, content))
    tensor = file.tensors["t"]
    assert (tensor.type, tensor.ne, tensor.shape) == (BY_NAME[name], (4, 3, 2), (2, 3, 4))
    assert (tensor.offset, tensor.file_offset, tensor.n_bytes) == (0, file.data_offset, len(raw))
    assert tensor.data.dtype == dtype
    assert tensor.data.shape == (2, 3, 4)
    assert tensor.data.flags.aligned
    assert tensor.data.tobytes() == raw == tensor.raw.tobytes()
    assert tensor.raw.dtype == np.uint8
    assert tensor.raw.shape == (len(raw),)


BLOCKS = [t for t in TENSOR_TYPES.values() if t.block > 1]


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda t: t.name)
def test_block_tensors_are_rows_of_bytes(tmp_path, kind):
    rng = np.random.default_rng(kind.id)
    rows = rng.integers(0, 256, (2, 3, 2 * kind.bytes), dtype=np.uint8)
    content = build([], [info("t", [2 * kind.block, 3, 2], kind.id, 0)], rows.tobytes())
    tensor = GGUFFile(save(tmp_path, content)).tensors["t"]
    assert tensor.shape == (2, 3, 2 * kind.block)
    assert tensor.type == kind
    assert tensor.data.dtype == np.uint8
    np.testing.assert_array_equal(tensor.data, rows)


def test_every_number_of_dimensions(tmp_path):
    infos = [
        info("d0", [], 0, 0),
        info("d1", [1], 0, 32),
        info("d2", [2, 1], 0, 64),
        info("d4", [1, 2, 1, 1], 0, 96),
    ]
    values = np.zeros(32, np.float32)
    values[[0, 8, 16, 17, 24, 25]] = [1, 2, 3, 4, 5, 6]
    tensors = GGUFFile(save(tmp_path, build([], infos, values.tobytes()))).tensors
    assert tensors["d0"].data.shape == ()
    assert tensors["d0"].data == 1
    assert tensors["d1"].data.tolist() == [2]
    assert tensors["d2"].data.tolist() == [[3, 4]]
    assert tensors["d4"].data.tolist() == [[[[5], [6]]]]


def test_tensors_come_in_file_order_whatever_their_offsets(tmp_path):
    infos = [info("last", [2], 0, 64), info("first", [2], 0, 0), info("mid", [2], 0, 32)]
    data = b"".join(struct.pack("<2f", i, i) + bytes(24) for i in range(3))
    path = save(tmp_path, build([], infos, data))
    file = GGUFFile(path)
    assert list(file.tensors) == ["last", "first", "mid"]
    assert [t.data[0] for t in file.tensors.values()] == [2, 0, 1]
    with pytest.raises(GGUFError, match=r"tensor 'last': offset 64 .*expected 0"):
        GGUFFile(path, strict=True)


def test_strict_takes_dense_files_and_refuses_gaps(tmp_path):
    data = bytes(128)
    dense = save(tmp_path, build([], [info("a", [9], 0, 0), info("b", [2], 0, 64)], data))
    assert len(GGUFFile(dense, strict=True).tensors) == 2
    gap = save(tmp_path, build([], [info("a", [8], 0, 0), info("b", [2], 0, 64)], data))
    assert len(GGUFFile(gap).tensors) == 2
    with pytest.raises(GGUFError, match=r"tensor 'b': offset 64 .*expected 32"):
        GGUFFile(gap, strict=True)


def test_the_last_tensor_needs_no_padding(tmp_path):
    content = build([], [info("t", [3], 0, 0)], struct.pack("<3f", 1, 2, 3))
    assert GGUFFile(save(tmp_path, content)).tensors["t"].data.tolist() == [1, 2, 3]


@pytest.mark.parametrize("align", [8, 16, 64, 4096])
def test_alignment_moves_data_start_and_offsets(tmp_path, align):
    infos = [info("a", [1], 0, 0), info("b", [1], 0, align)]
    data = struct.pack("<f", 1) + bytes(align - 4) + struct.pack("<f", 2)
    keys = [u32_key("general.alignment", align)]
    content = build(keys, infos, data, align)
    file = GGUFFile(save(tmp_path, content))
    assert file.alignment == align
    assert file.data_offset % align == 0
    assert [t.data[0] for t in file.tensors.values()] == [1, 2]


def test_views_cannot_be_made_writable(tmp_path):
    content = build([], [info("t", [8], 0, 0)], bytes(32))
    tensor = GGUFFile(save(tmp_path, content)).tensors["t"]
    for array in (tensor.data, tensor.raw, tensor.data[2:]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_views_outlive_the_file_object_and_closing(tmp_path):
    values = np.arange(100_000, dtype=np.float32)
    path = save(tmp_path, build([], [info("t", [values.size], 0, 0)], values.tobytes()))
    file = GGUFFile(path)
    kept, part = file.tensors["t"].data, file.tensors["t"].data[500:]
    file.close()
    file.close()
    os.unlink(path)
    del file
    gc.collect()
    np.testing.assert_array_equal(kept, values)
    del kept
    gc.collect()
    np.testing.assert_array_equal(part, values[500:])


def test_the_map_goes_with_the_last_view(tmp_path):
    path = save(tmp_path, build([u32_key("k", 1)], [info("t", [8], 0, 0)], bytes(32)))
    file = GGUFFile(path)
    view = file.tensors["t"].data
    mapped = weakref.ref(file._source.map)
    file.close()
    gc.collect()
    assert mapped() is not None
    del view
    gc.collect()
    assert mapped() is None
    dropped = GGUFFile(path)
    mapped = weakref.ref(dropped._source.map)
    del dropped
    assert mapped() is None, "a reference cycle keeps the file mapped"


def test_a_closed_file_says_so(tmp_path):
    keys = [u32_key("read", 1), u32_key("unread", 2)]
    path = save(tmp_path, build(keys, [info("t", [8], 0, 0)], bytes(32)))
    with GGUFFile(path) as file:
        assert file.metadata["read"] == 1
    assert file.metadata["read"] == 1
    assert list(file.metadata) == ["read", "unread"]
    assert file.metadata_type("unread") == "u32"
    for use in (lambda: file.metadata["unread"], lambda: file.tensors["t"].data):
        with pytest.raises(GGUFError, match=r"m\.gguf': is closed"):
            use()


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        GGUFFile(tmp_path / "none.gguf")
    with pytest.raises(IsADirectoryError):
        GGUFFile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GGUFError, match="not a regular file"):
        GGUFFile(tmp_path / "pipe")


class CountingMap:
    """A mapped file that counts the bytes that are sliced out of it."""

    def __init__(self, content):
        self.content, self.taken = content, 0

    def __getitem__(self, part):
        self.taken += len(self.content[part])
        return self.content[part]


def test_a_large_vocabulary_costs_a_few_steps_a_word_and_is_decoded_when_asked_for(tmp_path):
    tokens = [f"token {i}" for i in range(49_152)]
    keys = [
        array_key("tokens", STRING, len(tokens), b"".join(map(text, tokens))),
        array_key("types", I32, len(tokens), bytes(4 * len(tokens))),
    ]
    path = save(tmp_path, build(keys))
    steps = 10 * len(tokens)
    with bounded(steps, 1 << 17):  # far from what the words take
        file = GGUFFile(path)
    counting = file._source._map = CountingMap(file._source.map)
    with bounded(steps, 10 << 20):
        words = file.metadata["tokens"]
    assert words == tokens
    assert counting.taken == len(b"".join(map(text, tokens)))  # each byte once


def test_reads_what_the_gguf_package_writes(tmp_path):
    path = tmp_path / "m.gguf"
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((4, 64)).astype(np.float32)
    q8 = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b\u00e9"])
    writer.add_array("tokenizer.ggml.token_type", [1, 3])
    writer.add_tensor("f32", weights)
    writer.add_tensor("f16", weights.astype(np.float16))
    writer.add_tensor("q8", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("i32", np.array([1, -2, 3], np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile(path, strict=True) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.block_count"] == 2
        assert file.metadata["llama.rope.freq_base"] == 10000.0
        assert file.metadata["tokenizer.ggml.add_bos_token"] is True
        assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b\u00e9"]
        assert file.metadata["tokenizer.ggml.token_type"].tolist() == [1, 3]
        np.testing.assert_array_equal(file.tensors["f32"].data, weights)
        np.testing.assert_array_equal(file.tensors["f16"].data, weights.astype(np.float16))
        assert file.tensors["q8"].shape == (4, 64)
        assert file.tensors["q8"].type.name == "q8_0"
        np.testing.assert_array_equal(file.tensors["q8"].data, q8)
        assert file.tensors["i32"].data.tolist() == [1, -2, 3]


def test_repr_says_what_it_is(tmp_path):
    file = GGUFFile(save(tmp_path, build([u32_key("k", 1)])))
    assert "version 3, 1 keys, 0 tensors" in repr(file)
    assert "1 keys" in repr(file.metadata)
