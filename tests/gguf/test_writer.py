"""What the writer writes, read back by our reader and by the independent gguf package."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from hostile import build, info, save, u32_key

from pyggml.errors import GGUFError, ParameterError
from pyggml.gguf import TENSOR_TYPES, GGUFFile, GGUFWriter

SCALARS = [
    ("u8", 255),
    ("i8", -128),
    ("u16", 65535),
    ("i16", -32768),
    ("u32", 2**32 - 1),
    ("i32", -(2**31)),
    ("u64", 2**64 - 1),
    ("i64", -(2**63)),
    ("f32", 0.5),
    ("f64", 0.1),
    ("bool", True),
    ("bool", False),
    ("string", ""),
    ("string", "h\u00e9llo \U0001f642"),
]
ARRAYS = [
    ("u8[]", [0, 255]),
    ("i8[]", [-128, 127]),
    ("u16[]", [65535]),
    ("i16[]", [-1]),
    ("u32[]", [2**32 - 1, 0]),
    ("i32[]", [-(2**31)]),
    ("u64[]", [2**64 - 1]),
    ("i64[]", [-(2**63), 2**63 - 1]),
    ("f32[]", [1.5, -2]),
    ("f64[]", [0.1, 1e300]),
    ("bool[]", [True, False]),
    ("string[]", ["a", "", "\u0120b"]),
    ("string[]", []),
    ("u32[]", []),
    ("f32[]", []),
]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def files_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_the_bytes_of_a_small_file(tmp_path):
    path = tmp_path / "m.gguf"
    with GGUFWriter(path, "ab") as writer:
        writer.add_tensor("t", np.array([[1, 2]], np.float32))
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += struct.pack("<Q20sIQ2s", 20, b"general.architecture", 8, 2, b"ab")
    head += struct.pack("<Q1sIQQIQ", 1, b"t", 2, 2, 1, 0, 0)
    body = struct.pack("<2f", 1, 2) + bytes(24)
    assert path.read_bytes() == head + bytes(-len(head) % 32) + body


@pytest.mark.parametrize(("kind", "value"), SCALARS + ARRAYS, ids=str)
def test_metadata_round_trip(tmp_path, kind, value):
    path = tmp_path / "m.gguf"
    with GGUFWriter(path) as writer:
        writer.add("k", value, kind)
    with GGUFFile(path) as file:
        got = file.metadata["k"]
        assert file.metadata_type("k") == kind
        assert (got.tolist() if isinstance(got, np.ndarray) else got) == value


def test_large_integers_beside_small_ones(tmp_path):
    """numpy makes a list of both float64."""
    with GGUFWriter(tmp_path / "m.gguf") as writer:
        writer.add("k", [0, 2**63, 2**64 - 1], "u64[]")
        for kind, value in (("u64", [0, 2**64]), ("u64", [2**63, -1]), ("i64", [0, 2**63])):
            with pytest.raises(GGUFError, match="element 1: does not fit"):
                writer.add("bad", value, kind + "[]")
        with pytest.raises(GGUFError, match="element 0: must be of type u64"):
            writer.add("bad", [0.0, 2.0**63], "u64[]")
    assert GGUFFile(tmp_path / "m.gguf").metadata["k"].tolist() == [0, 2**63, 2**64 - 1]


def test_numpy_values_are_taken_as_metadata(tmp_path):
    with GGUFWriter(tmp_path / "m.gguf") as writer:
        writer.add("int", np.int64(7), "u8")
        writer.add("float", np.float32(0.25), "f32")
        writer.add("bool", np.bool_(True), "bool")
        writer.add("array", np.arange(3, dtype=np.int64), "u8[]")
        writer.add("floats", np.array([1, np.inf, np.nan]), "f32[]")
    metadata = GGUFFile(tmp_path / "m.gguf").metadata
    assert (metadata["int"], metadata["float"], metadata["bool"]) == (7, 0.25, True)
    assert metadata["array"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(metadata["floats"], [1, np.inf, np.nan])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("u8", 256),
        ("u8", -1),
        ("i8", 128),
        ("u32", 2**32),
        ("u64", 2**64),
        ("u32", 1.0),
        ("u32", True),
        ("u32", "1"),
        ("u32", None),
        ("u32", [1]),
        ("f32", 1e40),
        ("f32", "1.0"),
        ("f32", False),
        ("bool", 1),
        ("bool", None),
        ("string", b"x"),
        ("string", 5),
        ("string", "\ud800"),
        ("u8[]", [0, 256]),
        ("u32[]", [-1]),
        ("u64[]", [-1]),
        ("u64[]", np.array([-1])),
        ("i64[]", [2**63]),
        ("i32[]", [1.5]),
        ("i32[]", [[1, 2]]),
        ("i32[]", 5),
        ("i32[]", ["a"]),
        ("f32[]", [1e40]),
        ("f32[]", [True]),
        ("bool[]", [0, 1]),
        ("string[]", "abc"),
        ("string[]", ["a", 1]),
        ("string[]", ["\udfff"]),
        ("array", [1]),
        ("array[]", [[1]]),
        ("u32[][]", [[1]]),
        ("uint32", 1),
        ("", 1),
    ],
    ids=str,
)
def test_metadata_that_is_not_of_its_type(tmp_path, kind, value):
    writer = GGUFWriter(tmp_path / "m.gguf")
    with pytest.raises(GGUFError, match=r"m\.gguf': key 'some\.key': "):
        writer.add("some.key", value, kind)
    writer.add("some.key", 1, "u32")  # nothing was left behind


def test_plain_tensors_are_written_as_they_are(tmp_path):
    arrays = {
        "f32": weights(2, 3, 4),
        "f16": weights(5).astype(np.float16),
        "bf16": weights(3, 7).astype(ml_dtypes.bfloat16),
        "f8_e4m3": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(8, 32),
        "i8": np.arange(-3, 4, dtype=np.int8),
        "i16": np.arange(5, dtype=np.int16),
        "i32": np.arange(6, dtype=np.int32).reshape(1, 2, 1, 3),
        "i64": np.array([2**62, -1]),
        "f64": np.array(0.1),
    }
    with GGUFWriter(tmp_path / "m.gguf") as writer:
        for name, array in arrays.items():
            writer.add_tensor(name, array, name)
            writer.add_tensor(name + "_own", array)
    file = GGUFFile(tmp_path / "m.gguf", strict=True)
    for name, array in arrays.items():
        for tensor in (file.tensors[name], file.tensors[name + "_own"]):
            assert tensor.type.name == name
            assert tensor.shape == array.shape
            assert tensor.data.dtype == array.dtype
            assert tensor.data.tobytes() == array.tobytes()


@pytest.mark.parametrize("align", [8, 32, 64, 1024])
def test_alignment(tmp_path, align):
    with GGUFWriter(tmp_path / "m.gguf", alignment=align) as writer:
        writer.add_tensor("a", weights(3), "f32")
        writer.add_tensor("b", weights(5), "f8_e4m3")
        writer.add_tensor("c", weights(1), "f32")
    file = GGUFFile(tmp_path / "m.gguf", strict=True)
    assert file.alignment == align
    assert file.data_offset % align == 0
    assert ("general.alignment" in file.metadata) == (align != 32)
    assert [t.offset % align for t in file.tensors.values()] == [0, 0, 0]
    assert file.size % align == 0
    np.testing.assert_array_equal(file.tensors["c"].data, weights(1))


@pytest.mark.parametrize("align", [0, 1, 4, 24, -8, 1 << 32])
def test_alignments_that_are_refused(tmp_path, align):
    with pytest.raises(ParameterError, match="power of two and at least 8"):
        GGUFWriter(tmp_path / "m.gguf", alignment=align)


def test_keys_that_follow_from_the_tensors(tmp_path):
    def keys(kind: str) -> dict[str, object]:
        with GGUFWriter(tmp_path / "m.gguf", "llama", file_type=kind) as writer:
            writer.add_tensor("t", weights(32), kind)
        file = GGUFFile(tmp_path / "m.gguf")
        for name in set(file.metadata) - {"general.architecture", "pyggml.fp8.layout"}:
            assert file.metadata_type(name) == "u32"
        return dict(file.metadata)

    arch = {"general.architecture": "llama"}
    assert keys("f32") == arch | {"general.file_type": 0}
    assert keys("q8_0") == arch | {"general.file_type": 7, "general.quantization_version": 2}
    marker = {"pyggml.fp8.version": 1, "pyggml.fp8.layout": "plain"}
    assert keys("f8_e4m3") == arch | {"general.file_type": 42} | marker


def test_the_gguf_package_reads_our_files(tmp_path):
    x = weights(4, 64)
    path = tmp_path / "m.gguf"
    with GGUFWriter(path, "llama", alignment=64) as writer:
        for kind, value in SCALARS:
            writer.add(f"scalar.{kind}.{value}", value, kind)
        writer.add("words", ["a", "\u0120b"], "string[]")
        writer.add("types", [1, 3], "i32[]")
        for kind in ("f32", "f16", "bf16", "q8_0"):
            writer.add_tensor(kind, x, kind)
        writer.add_tensor("vector", x[0], "f32")
    reader = gguf.GGUFReader(path)
    for kind, value in SCALARS:
        got = reader.fields[f"scalar.{kind}.{value}"].contents()
        assert got == value
        assert isinstance(got, bool) == (kind == "bool")
    assert reader.fields["words"].contents() == ["a", "\u0120b"]
    assert reader.fields["types"].contents() == [1, 3]
    tensors = {t.name: t for t in reader.tensors}
    assert [int(n) for n in tensors["f32"].shape] == [64, 4]
    np.testing.assert_array_equal(tensors["f32"].data, x)
    np.testing.assert_array_equal(tensors["vector"].data, x[0])
    np.testing.assert_array_equal(tensors["f16"].data, x.astype(np.float16))
    for kind in ("bf16", "q8_0"):
        number = gguf.GGMLQuantizationType[kind.upper()]
        np.testing.assert_array_equal(tensors[kind].data, gguf.quants.quantize(x, number))


@pytest.mark.parametrize("kind", TENSOR_TYPES.values(), ids=lambda t: t.name)
def test_raw_tensors_of_every_type(tmp_path, kind):
    shape = (2, 3 * kind.block)
    raw = np.random.default_rng(kind.id).bytes(6 * kind.bytes)
    with GGUFWriter(tmp_path / "m.gguf") as writer:
        writer.add_raw_tensor("bytes", raw, shape, kind.name)
        writer.add_raw_tensor("rows", np.frombuffer(raw, np.uint8).reshape(2, -1), shape, kind.name)
    for tensor in GGUFFile(tmp_path / "m.gguf", strict=True).tensors.values():
        assert (tensor.type, tensor.shape, tensor.raw.tobytes()) == (kind, shape, raw)


@pytest.mark.parametrize(
    ("raw", "shape", "kind", "words"),
    [
        (bytes(33), (32,), "q8_0", r"\(32,\) of q8_0 has 34 bytes, got 33"),
        (bytes(34), (16, 2), "q8_0", "multiple of 32 elements, got 2"),
        (bytes(0), (0, 32), "q8_0", "all positive"),
        (bytes(4), (1, 1, 1, 1, 1), "f32", "at most 4 dimensions"),
        (bytes(4), (1,), "f31", "tensor type 'f31' is not known"),
        (np.zeros(1, np.float32), (1,), "f32", "must be uint8, got float32"),
    ],
)
def test_raw_tensors_that_are_refused(tmp_path, raw, shape, kind, words):
    with pytest.raises(GGUFError, match=rf"m\.gguf': tensor 't': .*{words}"):
        GGUFWriter(tmp_path / "m.gguf").add_raw_tensor("t", raw, shape, kind)


@pytest.mark.parametrize(
    ("array", "kind", "words"),
    [
        (np.zeros(33, np.float32), "q8_0", "multiple of 32"),
        (np.zeros((0, 4), np.float32), "f32", "all positive"),
        (np.zeros((1,) * 5, np.float32), "f32", "at most 4"),
        (np.zeros(3), "f16", "convert it to float32 first"),
        (np.zeros(32, np.float32), "q4_0", "floats are written as f32, f16, bf16, f8_e4m3, q8_0"),
        (np.zeros(3, np.int32), "f32", "cannot write a int32 array as f32"),
        (np.zeros(3, np.uint16), None, "no tensor type has dtype uint16"),
        (np.zeros(3, np.float32), "e4m3", "not known"),
    ],
)
def test_tensors_that_are_refused(tmp_path, array, kind, words):
    with pytest.raises(GGUFError, match=rf"m\.gguf': tensor 't': .*{words}"):
        GGUFWriter(tmp_path / "m.gguf").add_tensor("t", array, kind)


def test_names_that_are_refused(tmp_path):
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    one = np.ones(1, np.float32)
    writer.add_tensor("n" * 63, one)
    for name in ("", "n" * 64, "\u00e9" * 32, "a\0b", "\ud800"):
        with pytest.raises(GGUFError, match=r"names must have 1 to 63 bytes|as UTF-8"):
            writer.add_tensor(name, one)
    writer.add("k" * 65535, 1, "u8")
    for key in ("", "k" * 65536, "\ud800"):
        with pytest.raises(GGUFError, match=r"must have 1 to 65535 bytes|as UTF-8"):
            writer.add(key, 1, "u8")
    for key in ("general.alignment", "pyggml.fp8.version", "pyggml.fp8.layout"):
        with pytest.raises(GGUFError, match="the writer sets this key itself"):
            writer.add(key, 1, "u32")
    with pytest.raises(GGUFError, match="file_type 'f9' is not known"):
        GGUFWriter(tmp_path / "m.gguf", file_type="f9")


def test_duplicates_are_refused_and_the_first_one_stays(tmp_path):
    with GGUFWriter(tmp_path / "m.gguf", "llama") as writer:
        writer.add("k", 1, "u32")
        writer.add_tensor("t", np.ones(1, np.float32))
        with pytest.raises(GGUFError, match="key 'k' is there already"):
            writer.add("k", 2, "u32")
        with pytest.raises(GGUFError, match=r"key 'general\.architecture' is there already"):
            writer.add("general.architecture", "x", "string")
        with pytest.raises(GGUFError, match="tensor 't' is there already"):
            writer.add_tensor("t", np.zeros(1, np.float32))
        with pytest.raises(GGUFError, match="tensor 't' is there already"):
            writer.add_raw_tensor("t", bytes(4), (1,), "f32")
    file = GGUFFile(tmp_path / "m.gguf")
    assert file.metadata["k"] == 1
    assert file.tensors["t"].data.tolist() == [1]


def source_file(folder: Path, **options: int) -> GGUFFile:
    with GGUFWriter(folder / "source.gguf", "llama", **options) as writer:
        writer.add("f", 0.1, "f32")
        writer.add("words", ["a", "b"], "string[]")
        writer.add("nan", np.array([np.nan, 1]), "f64[]")
        writer.add_tensor("f8", weights(4, 8), "f8_e4m3")
        writer.add_tensor("q8", weights(2, 32), "q8_0")
        writer.add_tensor("norm", weights(8), "f32")
    return GGUFFile(folder / "source.gguf")


def test_a_copied_alignment_of_32_is_kept(tmp_path):
    keys = [u32_key("a", 1), u32_key("general.alignment", 32), u32_key("b", 2)]
    content = build(keys, [info("t", [8], 0, 0)], bytes(32))
    source = GGUFFile(save(tmp_path, content))
    with GGUFWriter(tmp_path / "copy.gguf") as writer:
        writer.copy_metadata(source)
        writer.copy_tensor(source.tensors["t"])
    assert (tmp_path / "copy.gguf").read_bytes() == content
    with GGUFWriter(tmp_path / "copy.gguf", alignment=64) as writer:
        writer.copy_metadata(source)
    assert GGUFFile(tmp_path / "copy.gguf").metadata["general.alignment"] == 64


@pytest.mark.parametrize("align", [None, 64])
def test_a_file_is_copied_byte_for_byte(tmp_path, align):
    source = source_file(tmp_path, alignment=align)
    with GGUFWriter(tmp_path / "copy.gguf") as writer:
        writer.copy_metadata(source)
        for tensor in source.tensors.values():
            writer.copy_tensor(tensor)
    assert (tmp_path / "copy.gguf").read_bytes() == (tmp_path / "source.gguf").read_bytes()


def test_a_copy_can_leave_out_rename_and_add(tmp_path):
    source = source_file(tmp_path)
    with GGUFWriter(tmp_path / "copy.gguf", alignment=128) as writer:
        writer.copy_metadata(source, skip={"f"})
        writer.add("f", 7, "u8")
        writer.copy_tensor(source.tensors["norm"], "other")
        writer.copy_tensor(source.tensors["q8"])
        writer.add_tensor("blk.0.attn_k.k_scale", np.array([0.5], np.float32))
        source.close()
    copy = GGUFFile(tmp_path / "copy.gguf", strict=True)
    assert copy.alignment == 128
    assert copy.metadata["f"] == 7
    assert copy.metadata["words"] == ["a", "b"]
    assert list(copy.tensors) == ["other", "q8", "blk.0.attn_k.k_scale"]
    assert copy.tensors["blk.0.attn_k.k_scale"].data.tolist() == [0.5]
    np.testing.assert_array_equal(copy.tensors["other"].data, weights(8))
    assert "pyggml.fp8.version" not in copy.metadata, "no f8 tensor was copied"


def test_a_file_can_be_rewritten_while_it_is_mapped(tmp_path):
    source = source_file(tmp_path)
    before = source.tensors["norm"].data
    with GGUFWriter(source.path) as writer:
        writer.add_tensor("norm", before * 2, "f32")
        writer.copy_tensor(source.tensors["f8"])
    np.testing.assert_array_equal(before, weights(8))
    np.testing.assert_array_equal(GGUFFile(source.path).tensors["norm"].data, weights(8) * 2)


def test_an_exception_in_the_block_writes_nothing(tmp_path):
    def interrupted() -> None:
        with GGUFWriter(tmp_path / "m.gguf", "llama") as writer:
            writer.add_tensor("t", weights(4))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, failing):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"old")
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("t", weights(1000), "f32")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        writer.write()
    assert files_in(tmp_path) == ["m.gguf"]
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    writer.write()  # a failed write can be tried again
    assert len(GGUFFile(path).tensors) == 1


def test_an_interrupt_while_converting_leaves_nothing(tmp_path, monkeypatch):
    writer = GGUFWriter(tmp_path / "m.gguf")
    writer.add_tensor("t", weights(32), "q8_0")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyggml.gguf.writer.encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.write()
    assert files_in(tmp_path) == []


def test_an_array_that_changed_its_shape_is_found(tmp_path, monkeypatch):
    writer = GGUFWriter(tmp_path / "m.gguf")
    writer.add_tensor("t", weights(32))
    monkeypatch.setattr("pyggml.gguf.writer.encode", lambda *_: np.zeros(3, np.uint8))
    with pytest.raises(GGUFError, match="tensor 't': 3 bytes were made for 128"):
        writer.write()
    assert files_in(tmp_path) == []


def test_nothing_appears_before_write_and_it_can_be_called_by_hand(tmp_path):
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("t", weights(4))
    assert files_in(tmp_path) == []
    writer.write()
    assert files_in(tmp_path) == ["m.gguf"]
    for again in (
        writer.write,
        lambda: writer.add("k", 1, "u8"),
        lambda: writer.add_tensor("u", weights(1)),
    ):
        with pytest.raises(GGUFError, match="was written already"):
            again()


def test_write_inside_the_block_is_not_repeated(tmp_path):
    with GGUFWriter(tmp_path / "m.gguf", "llama") as writer:
        writer.write()
    assert GGUFFile(tmp_path / "m.gguf").metadata["general.architecture"] == "llama"


def test_a_link_is_kept_and_its_target_replaced(tmp_path):
    (tmp_path / "real.gguf").write_bytes(b"old")
    os.symlink(tmp_path / "real.gguf", tmp_path / "link.gguf")
    GGUFWriter(tmp_path / "link.gguf", "llama").write()
    assert os.path.islink(tmp_path / "link.gguf")
    assert len(GGUFFile(tmp_path / "real.gguf").metadata) == 1


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        GGUFWriter(tmp_path / "none" / "m.gguf").write()


def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    GGUFWriter("m.gguf", "llama").write()
    assert files_in(tmp_path) == ["m.gguf"]
