"""Damaged GGUF files: the reader opens them or raises GGUFError, and nothing else.

python tests/fuzz/gguf_fuzz.py --seed 1 --count 100000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from pyggml.errors import GGUFError
from pyggml.gguf import GGUFFile, GGUFWriter

# Values that break counts, lengths, offsets and types.
WORDS = (0, 1, 2, 7, 8, 31, 43, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63)
EXPECTED = (GGUFError,)
CORPUS = Path(__file__).parent / "corpus/gguf"


def base_file(path: Path) -> bytes:
    """A small file with every kind of value and several tensors."""
    rng = np.random.default_rng(0)
    with GGUFWriter(path, arch="llama") as writer:
        writer.add("a.u8", 7, "u8")
        writer.add("a.f64", 0.5, "f64")
        writer.add("a.flag", True, "bool")
        writer.add("a.text", "text", "string")
        writer.add("a.words", ["x", "yy", ""], "string[]")
        writer.add("a.numbers", [1, 2, 3], "i32[]")
        for name, kind in (("f", "f32"), ("h", "f16"), ("e", "f8_e4m3"), ("q", "q8_0")):
            writer.add_tensor(name, rng.standard_normal((2, 32)).astype(np.float32), kind)
    return path.read_bytes()


def damaged(base: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes of a file: bits, bytes, words, cuts, copies."""
    data = bytearray(base)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, max(len(data), 1)))
        kind = int(rng.integers(0, 5))
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            word = WORDS[int(rng.integers(0, len(WORDS)))] & (2**64 - 1)
            size = (4, 8)[int(rng.integers(0, 2))]
            data[at : at + size] = (word & (2 ** (8 * size) - 1)).to_bytes(size, "little")
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + int(rng.integers(1, 9))]
        else:
            data[at:at] = bytes(data[at : at + int(rng.integers(1, 33))])
    return bytes(data)


def read_all(path: Path) -> None:
    """Opens a file and looks at everything in it."""
    with GGUFFile(path) as file:
        for key in file.metadata:
            file.metadata[key]
        for info in file.tensors.values():
            info.data.tobytes()


def fuzz(seed: int, count: int) -> tuple[int, int]:
    """Runs the corpus and `count` inputs; returns how many were opened and how many refused.

    One input in two is made of the file with everything in it, one of a file of the corpus.
    """
    opened = refused = 0
    corpus = [file.read_bytes() for file in sorted(CORPUS.iterdir())]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.gguf"
        base = base_file(Path(folder) / "base.gguf")
        for i in range(seed - len(corpus), seed + count):
            if i < seed:
                path.write_bytes(corpus[i - seed])
            else:
                rng = np.random.default_rng(i)
                of_corpus = rng.random() < 0.5
                start = corpus[int(rng.integers(len(corpus)))] if of_corpus else base
                path.write_bytes(damaged(start, rng))
            try:
                read_all(path)
                opened += 1
            except EXPECTED:
                refused += 1
            except BaseException:
                print(f"gguf_fuzz: --seed {i} --count 1")
                raise
    return opened, refused


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    started = time.perf_counter()
    opened, refused = fuzz(arguments.seed, arguments.count)
    seconds = time.perf_counter() - started
    print(f"inputs {arguments.count} opened {opened} refused {refused} seconds {seconds:.1f}")
