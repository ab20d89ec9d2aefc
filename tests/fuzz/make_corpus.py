"""Writes corpus/gguf: small files, whole and damaged, each for a kind that readers got wrong; and
looks for the inputs of the C targets that have a name, where the bytes have come to mean another.

python tests/fuzz/make_corpus.py [FOLDER of the built C targets]
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "gguf"))

import hostile as h  # noqa: E402

LLAMA = h.string_key("general.architecture", "llama")
F32, Q4_0, Q8_0, Q4_K, F8_E4M3 = 0, 2, 8, 12, 43


def whole() -> dict[str, bytes]:
    """Files that open."""
    every_kind = [
        h.key(f"k.{kind}", kind, bytes(size)) for kind, size in enumerate((1, 1, 2, 2, 4, 4, 4, 1))
    ] + [h.key(f"k.{kind}", kind, bytes(8)) for kind in (h.U64, h.I64, h.F64)]
    arrays = [
        h.array_key("a.i32", h.I32, 3, bytes(12)),
        h.array_key("a.text", h.STRING, 2, h.text("x") + h.text("")),
        h.array_key("a.none", h.F64, 0, b""),
    ]
    blocks = [h.info("q4", (32, 2), Q4_0, 0), h.info("q8", (32,), Q8_0, 64)]
    return {
        "whole_empty": h.build(),
        "whole_every_kind": h.build([LLAMA, *every_kind]),
        "whole_arrays": h.build([LLAMA, *arrays]),
        "whole_f32": h.build([LLAMA], [h.info("t", (4, 2), F32, 0)], bytes(32)),
        "whole_f8": h.build([LLAMA], [h.info("t", (4, 2), F8_E4M3, 0)], bytes(range(0x78, 0x80))),
        "whole_blocks": h.build([LLAMA], blocks, bytes(98)),
        "whole_k_quant": h.build([LLAMA], [h.info("k", (256,), Q4_K, 0)], bytes(144)),
        "whole_align_8": h.build(
            [h.u32_key("general.alignment", 8)],
            [h.info("a", (1,), F32, 0), h.info("b", (1,), F32, 8)], bytes(12), 8,
        ),
        "whole_version_2": b"GGUF" + struct.pack("<IQQ", 2, 0, 0),
    }  # fmt: skip


def damaged() -> dict[str, bytes]:
    """Files that must be refused."""
    huge, top = 2**62, 2**64 - 1
    one = [h.info("t", (4,), F32, 0)]
    f32 = {
        "zero": (4, 0), "negative": (4, -1), "wraps": (2**32, 2**32), "int64": (2**63 - 1, 2),
        "padding_wraps": (huge - 1,), "wraps_to_4": (4194305, 4194305, 211106198978564),
    }  # fmt: skip
    made = {f"ne_{name}": h.build([], [h.info("t", ne, F32, 0)]) for name, ne in f32.items()}
    for name, offset in (("high", 2**40), ("sum_wraps", 2**64 - 32), ("unaligned", 1)):
        made[f"offset_{name}"] = h.build([], [h.info("t", (4,), F32, offset)], bytes(16))
    for value in (0, 3, 2**31):
        made[f"align_{value}"] = h.build([h.u32_key("general.alignment", value)], one, bytes(16))
    twice = h.u32_key("k", 1)
    nested = h.key("k", h.ARRAY, struct.pack("<IQIQ", h.ARRAY, 1, h.U8, 0))
    return made | {
        "short_3": b"GGU",
        "short_23": h.header()[:23],
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        "page": b"<!DOCTYPE html><html></html>",
        "n_tensors_huge": h.header(n_tensors=huge),
        "n_keys_huge": h.header(n_keys=top),
        "string_huge": h.header([h.text("k", 2**63)]),
        "array_endless": h.header([h.array_key("k", h.U8, 2**63, b"")]),
        "array_of_arrays": h.header([nested]),
        "bool_2": h.header([h.key("k", h.BOOL, b"\2")]),
        "not_utf8": h.header([h.string_key("k", b"\xff\xfe")]),
        "key_empty": h.header([h.u32_key("", 1)]),
        "key_twice": h.header([twice, twice]),
        "tensor_twice": h.build([], one * 2, bytes(64)),
        "overlap": h.build([], [h.info("a", (16,), F32, 0), h.info("b", (4,), F32, 32)], bytes(64)),
        "n_dims_5": h.build([], [h.info("t", (1,) * 5, F32, 0)], bytes(32)),
        "n_dims_lies": h.build([], [h.info("t", (1,), F32, 0, n_dims=2**31)], bytes(32)),
        "part_of_a_block": h.build([], [h.info("t", (31,), Q4_0, 0)], bytes(32)),
        "cut_in_the_tensor": h.build([], one, bytes(15)),
    }  # fmt: skip


def files() -> dict[str, bytes]:
    """All of corpus/gguf by name; those that open begin with "whole"."""
    return whole() | damaged()


# What a C target tells of an input with a name when it reaches what the name says.
F16_NAN = "..[7f][def]"
NAMED = {
    "graph/one_value_twice": r"^ +(\d+) input (.*)\n(?s:.*)"
    r"^ +(\d+) add_id \1:\2 \1:\2 \d+:.* -> \2\noutputs \3\n",
    "graph/write_into_own_operand": r"refused: \w+: \w+ lies in the memory of \w+, which is wr",
    "graph/write_over_an_alias": r"^ +(\d+) lies in the memory of constant (\d+)\n(?s:.*)"
    r"^ +(\d+) cpy \d+:.* \1:.*\noutputs.* \2\b",
    "graph/more_elements_than_bytes": r"refused: .* would pass 2\^62 elements: .* q\d_",
    "kernels/nan_and_nan": rf"^q5_1, blocks of 24 bytes:(?: \w{{48}})* ({F16_NAN})(?!\1){F16_NAN}",
}


def tell(folder: Path, name: str, *options: object) -> str:
    """What a C target tells of one input or many."""
    command = [folder / f"fuzz_{name.split('/')[0]}", "--tell", *options]
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=True
    ).stdout


def reaches(folder: Path, name: str, path: Path) -> bool:
    """True for an input that does what its name says; a graph must have run, too."""
    told = tell(folder, name, "--count", 0, path)
    ran = name.startswith("kernels/") or "run and compared 1 " in told
    return ran and re.search(NAMED[name], told, re.MULTILINE) is not None


def look_for(folder: Path, name: str, path: Path) -> None:
    """Writes the first random input that reaches what the name says, shortened."""
    for seed in range(1, 1000):
        told = tell(folder, name, "--seed", seed, "--count", 4000)
        parts = re.split(r"^at (\d+)\n", told, flags=re.MULTILINE)[1:]
        for at, text in zip(parts[0::2], parts[1::2], strict=True):
            if re.search(NAMED[name], text, re.MULTILINE):
                tell(folder, name, "--seed", seed, "--at", at, "--save", path)
                if reaches(folder, name, path):
                    shorten(folder, name, path)
                    return
    raise SystemExit(f"no input reaches what {name} says")


def shorten(folder: Path, name: str, path: Path) -> None:
    """Cuts out all that the input does without."""
    content = path.read_bytes()
    for step in (64, 16, 4, 1):
        for at in range(len(content) - 1, -1, -step):
            path.write_bytes(content[:at] + content[at + step :])
            if reaches(folder, name, path):
                content = path.read_bytes()
    path.write_bytes(content)


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / "corpus/gguf" / name).write_bytes(content)
    for folder in map(Path, sys.argv[1:]):
        for name in NAMED:
            path = HERE / "corpus" / name
            if not path.exists() or not reaches(folder, name, path):
                look_for(folder, name, path)
                print(f"{name} is new, of {path.stat().st_size} bytes")
