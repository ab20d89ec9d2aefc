"""What paths and the arguments of the reader are taken, and what is refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hostile import build, save, string_key
from odd import HUGE, Silent, opened, small_file

from pyggml import gguf
from pyggml.errors import GGUFError, ParameterError, ShapeError
from pyggml.gguf import BY_NAME, GGUFFile, GGUFWriter

# paths


def test_paths_of_every_kind(tmp_path):
    for path in (str(tmp_path / "a"), os.fsencode(tmp_path / "b"), tmp_path / "c"):
        made = GGUFWriter(path, "llama")
        made.write()
        assert made.path == os.fsdecode(path)
        with GGUFFile(path) as file:
            assert file.metadata["general.architecture"] == "llama"
            assert file.path == (os.fsdecode(path) if isinstance(path, bytes) else path)
            assert repr(os.fsdecode(path)) in repr(file)
    odd = os.fsencode(tmp_path) + b"/\xff.gguf"  # no UTF-8, and a name all the same
    GGUFWriter(odd, "llama").write()
    assert len(GGUFFile(os.fsdecode(odd)).metadata) == 1


@pytest.mark.parametrize("use", [GGUFFile, GGUFWriter])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a\0b", r"'a\\x00b': the path holds a NUL"),
        (b"a\0b", r"'a\\x00b': the path holds a NUL"),
        (Path("a\0b"), r"'a\\x00b': the path holds a NUL"),
        ("a\ud800", r"'a\\ud800': the path holds half a character"),
        (Path("a\ud800"), r"'a\\ud800': the path holds half a character"),
    ],
    ids=repr,
)
def test_paths_that_the_system_cannot_take(use, path, words):
    with pytest.raises(GGUFError, match=words):
        use(path)


def test_folders_and_pipes_are_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    for path in ("", ".", tmp_path / "folder"):
        with pytest.raises(IsADirectoryError):
            GGUFWriter(path).write()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GGUFError, match=r"pipe': is not a regular file"):
        GGUFWriter(tmp_path / "pipe").write()
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


@pytest.mark.parametrize("use", [GGUFFile, GGUFWriter])
@pytest.mark.parametrize("path", [None, 5, True, HUGE, ["a"], bytearray(b"a"), Silent()], ids=type)
def test_what_is_no_path(use, path):
    with pytest.raises(ParameterError, match="is no path"):
        use(path)


# the reader


@pytest.mark.parametrize(
    "bad", ["x", None, 0.5, 2, -1, HUGE, [True], np.ones(2), Silent()], ids=type
)
def test_strict_is_true_or_false(tmp_path, bad):
    path = small_file(tmp_path)
    with pytest.raises(ParameterError, match=r"small\.gguf': strict: True or False expected"):
        GGUFFile(path, strict=bad)
    for good in (True, False, 1, 0, np.bool_(True)):
        GGUFFile(path, strict=good)


@pytest.mark.parametrize(
    "bad", ["x", None, 0.5, True, [9], np.ones(2), Silent(), -1, -HUGE], ids=type
)
def test_max_string_bytes_is_a_count(tmp_path, bad):
    path = small_file(tmp_path)
    with pytest.raises(ParameterError, match=r"small\.gguf': max_string_bytes"):
        GGUFFile(path, max_string_bytes=bad)
    assert GGUFFile(path, max_string_bytes=np.int64(1)).metadata["word"] == "w"


def test_max_string_bytes_without_end(tmp_path):
    assert GGUFFile(small_file(tmp_path), max_string_bytes=HUGE).metadata["word"] == "w"
    path = save(tmp_path, build([string_key("k", "v")])[:-40])
    with pytest.raises(GGUFError, match=r"key 'k'|header"):
        GGUFFile(path, max_string_bytes=HUGE)


@pytest.mark.parametrize("bad", [None, 5, b"word", [], {}, HUGE, Silent()], ids=type)
def test_keys_that_are_no_strings_are_in_no_file(tmp_path, bad):
    file = opened(tmp_path)
    assert bad not in file.metadata
    for call in (
        file.metadata_type,
        file.metadata_length,
        file.metadata.entry,
        file.metadata.encoded,
        file.metadata.__getitem__,
        file.metadata.get,
    ):
        with pytest.raises(ParameterError, match=r"small\.gguf': key .* is no string"):
            call(bad)


def test_metadata_is_compared_also_where_it_holds_arrays(tmp_path):
    def metadata(name: str, numbers: list[int]) -> gguf.Metadata:
        with GGUFWriter(tmp_path / name, "llama") as made:
            made.add("numbers", numbers, "u32[]")
            made.add("words", ["a"], "string[]")
        return GGUFFile(tmp_path / name).metadata

    one, same, other = metadata("a", [1, 2]), metadata("b", [1, 2]), metadata("c", [1, 3])
    assert one == same
    assert one == dict(same)
    assert one != other
    assert one != dict(other)
    assert one != metadata("d", [1])
    assert one != {}
    for thing in (None, 5, [], "x", np.ones(2).tolist()):
        assert one != thing


# the bytes of a row


@pytest.mark.parametrize(
    ("n", "error"),
    [
        (None, ParameterError),
        ("32", ParameterError),
        (32.0, ParameterError),
        (True, ParameterError),
        (-32, ShapeError),
        (33, ShapeError),
        (HUGE + 1, ShapeError),
    ],
    ids=lambda v: type(v).__name__,
)
def test_rows_that_are_none(n, error):
    with pytest.raises(error, match="row of q8_0: "):
        BY_NAME["q8_0"].row_bytes(n)
