"""A small file with everything in it, damaged everywhere: read fully or refused, nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hostile import (
    BOOL,
    F32,
    F64,
    I32,
    STRING,
    U8,
    U64,
    array_key,
    build,
    header,
    info,
    key,
    save,
    string_key,
    text,
    u32_key,
)

from pyggml.errors import GGUFError
from pyggml.gguf import GGUFFile

KEYS = [
    string_key("general.architecture", "llama"),
    u32_key("general.alignment", 32),
    key("b", BOOL, b"\1"),
    key("u8", U8, b"\7"),
    key("f", F32, struct.pack("<f", 1.5)),
    key("d", F64, struct.pack("<d", 1.5)),
    key("q", U64, struct.pack("<Q", 3)),
    array_key("ints", I32, 3, struct.pack("<3i", 1, 2, 3)),
    array_key("flags", BOOL, 2, b"\0\1"),
    array_key("words", STRING, 3, text("a") + text("") + text("b\u00e9")),
    u32_key("pyggml.fp8.version", 1),
    string_key("pyggml.fp8.layout", "plain"),
]
INFOS = [
    info("blk.0.w", [32, 2], 8, 0),
    info("f8", [8, 5], 43, 96),
    info("f32", [3, 2, 1], 0, 160),
    info("one", [], 30, 192),
]
HEAD = header(KEYS, INFOS)
DATA = bytes(range(194))
WHOLE = build(KEYS, INFOS, DATA)


def read_fully(path: Path) -> int:
    """Touch all that a file holds; returns how much there was."""
    seen = 0
    with GGUFFile(path) as file:
        seen += len(repr(file))
        for name, value in file.metadata.items():
            seen += len(repr(value)) + len(file.metadata_type(name))
            seen += file.metadata_length(name) or 0
        for tensor in file.tensors.values():
            seen += tensor.data.nbytes + int(tensor.raw.sum(dtype=np.int64))
            assert tensor.raw.size == tensor.n_bytes == tensor.data.nbytes
            assert tensor.file_offset + tensor.n_bytes <= file.size
    return seen


def refusal(path: Path) -> str | None:
    """Why the file is refused, or None; any other exception comes through."""
    try:
        read_fully(path)
    except GGUFError as error:
        return str(error)
    return None


def outcomes(folder: Path, contents: Iterator[bytes]) -> dict[str, int]:
    """Count the files that are read and that are refused; any other exception fails the test."""
    counts = {"read": 0, "refused": 0}
    for content in contents:
        path = save(folder, content)
        message = refusal(path)
        assert message is None or message.startswith(f"GGUF file '{path}': ")
        counts["read" if message is None else "refused"] += 1
    return counts


def test_the_whole_file_is_right(tmp_path):
    assert read_fully(save(tmp_path, WHOLE)) > 0


def test_cut_at_every_byte(tmp_path):
    for size in range(len(WHOLE)):
        path = save(tmp_path, WHOLE[:size])
        with pytest.raises(GGUFError) as caught:
            GGUFFile(path)
        assert size == 0 or f"file has {size} bytes" in str(caught.value) or "magic" in str(caught)


def test_every_bit_of_the_header_flipped(tmp_path):
    def flips() -> Iterator[bytes]:
        for at in range(len(HEAD)):
            for change in (*(1 << bit for bit in range(8)), 0xFF):
                yield WHOLE[:at] + bytes([WHOLE[at] ^ change]) + WHOLE[at + 1 :]

    counts = outcomes(tmp_path, flips())
    # a flip in a name or a value is harmless, one in a length or a type is not
    assert counts["read"] > 500, counts
    assert counts["refused"] > 1000, counts


def test_every_header_byte_taken_out_or_doubled(tmp_path):
    def edits() -> Iterator[bytes]:
        for at in range(len(HEAD)):
            yield WHOLE[:at] + WHOLE[at + 1 :]
            yield WHOLE[: at + 1] + WHOLE[at:]

    counts = outcomes(tmp_path, edits())
    assert counts["refused"] > len(HEAD)


def test_random_damage(tmp_path):
    def damaged() -> Iterator[bytes]:
        rng = np.random.default_rng(20)
        edges = np.array([0, 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
        for _ in range(1500):
            content = bytearray(WHOLE)
            for _ in range(int(rng.integers(1, 5))):
                at = int(rng.integers(4, len(HEAD) - 8))
                if rng.random() < 0.5:
                    content[at] = int(rng.integers(0, 256))
                else:
                    content[at : at + 8] = rng.choice(edges).tobytes()
            yield bytes(content)

    counts = outcomes(tmp_path, damaged())
    assert counts["refused"] > 500, counts


def test_random_bytes_behind_a_right_start(tmp_path):
    def noise() -> Iterator[bytes]:
        rng = np.random.default_rng(21)
        for _ in range(300):
            counts = struct.pack("<QQ", *rng.integers(0, 4, 2))
            yield b"GGUF\3\0\0\0" + counts + rng.bytes(int(rng.integers(0, 300)))

    assert outcomes(tmp_path, noise())["refused"] > 200
