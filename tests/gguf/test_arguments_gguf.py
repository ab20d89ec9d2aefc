"""A walk over every argument of pyggml.gguf with odd values: refused by name, or written rightly.

Over the signatures, so that a new method or parameter is met without a line here. What each of them
takes and refuses: test_arguments_writer.py and test_arguments_reader.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd import BAD, opened, small_file, writer

from pyggml import gguf
from pyggml.errors import DTypeError, GGUFError, PyggmlError
from pyggml.gguf import BY_NAME, GGUFFile, GGUFWriter

# What is called, on what, and arguments that are right.
CALLS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], dict[str, Any]]]] = {
    "GGUFFile": (lambda _: GGUFFile, lambda p: {"path": small_file(p)}),
    "GGUFFile.metadata_type": (lambda p: opened(p).metadata_type, lambda _: {"key": "word"}),
    "GGUFFile.metadata_length": (lambda p: opened(p).metadata_length, lambda _: {"key": "word"}),
    "GGUFWriter": (lambda _: GGUFWriter, lambda p: {"path": p / "m.gguf"}),
    "GGUFWriter.add": (
        lambda p: writer(p).add,
        lambda _: {"key": "some.key", "value": 3, "type": "u32"},
    ),
    "GGUFWriter.add_tensor": (
        lambda p: writer(p).add_tensor,
        lambda _: {"name": "t", "array": np.ones(32, np.float32)},
    ),
    "GGUFWriter.add_raw_tensor": (
        lambda p: writer(p).add_raw_tensor,
        lambda _: {"name": "t", "raw": bytes(4), "shape": (1,), "type": "f32"},
    ),
    "GGUFWriter.copy_metadata": (
        lambda p: writer(p).copy_metadata,
        lambda p: {"file": opened(p)},
    ),
    "GGUFWriter.copy_tensor": (
        lambda p: writer(p).copy_tensor,
        lambda p: {"info": opened(p).tensors["t"]},
    ),
    "Metadata.entry": (lambda p: opened(p).metadata.entry, lambda _: {"key": "word"}),
    "Metadata.encoded": (lambda p: opened(p).metadata.encoded, lambda _: {"key": "word"}),
    "TensorType.row_bytes": (lambda _: BY_NAME["q8_0"].row_bytes, lambda _: {"n": 32}),
}
WITHOUT_ARGUMENTS = {"GGUFFile.close", "GGUFWriter.write"}
# the reader makes these, and so does no caller; or an enum and a tuple of Python
MADE_BY_THE_READER = {"Metadata", "TensorInfo", "TensorType", "ValueType"}
# of no class of pyggml, and documented
ALSO_RAISED = {"GGUFFile": OSError, "GGUFFile.metadata_type": KeyError}
ALSO_RAISED |= dict.fromkeys(("GGUFFile.metadata_length", "Metadata.entry"), KeyError)
ALSO_RAISED |= {"Metadata.encoded": KeyError, "GGUFWriter": OSError}
# where a message shows what the argument is for instead of its name
SAID_OTHERWISE = {
    ("GGUFFile", "max_string_bytes"): "small.gguf",  # 0 is a limit that its words pass
    ("GGUFWriter", "arch"): "general.architecture",
    ("GGUFWriter", "file_type"): "file_type",
    ("GGUFWriter.add", "value"): "key 'some.key'",
    ("GGUFWriter.add_tensor", "name"): "tensor",
    ("GGUFWriter.add_raw_tensor", "name"): "tensor",
    ("GGUFWriter.copy_tensor", "name"): "tensor",
    ("GGUFWriter.add_tensor", "array"): "tensor 't'",
    ("GGUFWriter.copy_metadata", "file"): "GGUFFile",
    ("GGUFWriter.copy_tensor", "info"): "TensorInfo",
    ("TensorType.row_bytes", "n"): "row of q8_0",
    ("GGUFFile", "path"): "",
    ("GGUFWriter", "path"): "",
    ("GGUFWriter.add_raw_tensor", "raw"): "tensor 't'",
    ("GGUFWriter.add_raw_tensor", "shape"): "tensor 't'",
    ("GGUFWriter.add", "type"): "type",
}


def parameters() -> list[tuple[str, str]]:
    found = []
    for name in CALLS:
        owner, _, method = name.partition(".")
        target = getattr(gguf, owner)
        signature = inspect.signature(getattr(target, method) if method else target)
        found += [(name, p) for p in signature.parameters if p != "self"]
    return found


def test_the_walk_meets_everything_that_is_public():
    public = set()
    for name in gguf.__all__:
        target = getattr(gguf, name)
        if not inspect.isclass(target):
            continue
        public |= {name} - MADE_BY_THE_READER
        methods = {m for m, f in vars(target).items() if inspect.isfunction(f) and m[0] != "_"}
        public |= {f"{name}.{m}" for m in methods}
    assert public == set(CALLS) | WITHOUT_ARGUMENTS


def check_written(made: GGUFWriter, folder: Path) -> None:
    """What a writer has taken, it writes, and the reader takes that."""
    assert isinstance(made.path, str)
    made.path = str(folder / "written.gguf")  # a walk over paths writes nowhere else
    if made.alignment < 1 << 20:
        made.write()
        with GGUFFile(made.path, strict=True) as file:
            for key in file.metadata:
                assert type(key) is str
                assert file.metadata[key] is not None


@pytest.mark.parametrize(("call", "parameter"), parameters(), ids=map(".".join, parameters()))
@pytest.mark.filterwarnings("error")
def test_every_argument_is_refused_by_name_or_taken(tmp_path, monkeypatch, call, parameter):
    monkeypatch.chdir(tmp_path)
    target, right = CALLS[call]
    for name, bad in BAD.items():
        function = target(tmp_path)
        arguments = right(tmp_path) | {parameter: bad()}
        try:
            made = function(**arguments)
        except PyggmlError as error:
            message = str(error)
            assert SAID_OTHERWISE.get((call, parameter), parameter) in message, (name, message)
            assert "GGUF file" in message or call.startswith("TensorType"), (name, message)
            assert len(message) < 600 + len(str(tmp_path)), (name, message[:300])
            assert message.isprintable(), (name, message)
            continue
        except ALSO_RAISED.get(call, ()):
            continue
        except Exception as error:
            raise AssertionError(f"{call}: {parameter}={name}: {error!r:.200}") from error
        if call.startswith("GGUFWriter"):
            check_written(made or function.__self__, tmp_path)


@pytest.mark.parametrize("kind", [*(f"{t.label}[]" for t in gguf.ValueType if t != 9), "f32"])
@pytest.mark.filterwarnings("error")
def test_every_value_is_refused_with_its_key_or_written(tmp_path, kind):
    for name, bad in BAD.items():
        made = writer(tmp_path)
        try:
            made.add("some.key", bad(), kind)
        except (GGUFError, DTypeError) as error:
            message = str(error)
        else:
            check_written(made, tmp_path)
            continue
        assert f"GGUF file '{made.path}': key 'some.key': " in message, name
        assert len(message) < 400 + len(made.path), name
