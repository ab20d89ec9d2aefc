"""What GGUFWriter writes, GGUFFile reads: any metadata, any tensors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties import draw as d

import pyggml as pg
from pyggml.gguf import GGUFFile, GGUFWriter

INTEGERS = {f"{sign}{bits}": (sign, bits) for sign in "ui" for bits in (8, 16, 32, 64)}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text("abcdefghij._0123456789", min_size=1, max_size=30)


def scalars(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTEGERS:
        sign, bits = INTEGERS[kind]
        low = -(2 ** (bits - 1)) if sign == "i" else 0
        return st.integers(low, low + 2**bits - 1)
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return texts
    return st.floats(width=32 if kind == "f32" else 64, allow_nan=False)


@st.composite
def metadata(draw: st.DrawFn) -> dict[str, tuple[str, Any]]:
    """Key -> (type, value); a prefix keeps them apart from the keys that mean something."""
    out = {}
    for name in draw(st.lists(names, max_size=6, unique=True)):
        kind = draw(st.sampled_from([*INTEGERS, "bool", "string", "f32", "f64"]))
        if draw(st.booleans()):
            out["x." + name] = (kind, draw(scalars(kind)))
        else:
            out["x." + name] = (kind + "[]", draw(st.lists(scalars(kind), max_size=5)))
    return out


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, tuple[str, d.Array]]:
    """Name -> (type, values); whole blocks, no empty axis."""
    out = {}
    for name in draw(st.lists(names, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["f32", "f16", "bf16", "f8_e4m3", "q8_0"]))
        shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        shape[-1] *= pg.dtype(kind).block
        out[name] = (kind, d.values(tuple(shape), draw(d.seeds)))
    return out


@given(metadata(), tensors(), st.sampled_from([None, 8, 32, 256]))
def test_round_trip(
    keys: dict[str, tuple[str, Any]], arrays: dict[str, tuple[str, d.Array]], alignment: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        with GGUFWriter(path, alignment=alignment) as writer:
            for key, (kind, value) in keys.items():
                writer.add(key, value, kind)
            for name, (kind, array) in arrays.items():
                writer.add_tensor(name, array, kind)
        with GGUFFile(path) as file:
            found = {k: v for k, v in file.metadata.items() if k.startswith("x.")}
            assert list(found) == list(keys)
            for key, (_, value) in keys.items():
                read = found[key]
                if isinstance(value, list):
                    read = read.tolist() if isinstance(read, np.ndarray) else list(read)
                assert read == value, key
            assert list(file.tensors) == list(arrays)
            for name, (kind, array) in arrays.items():
                info = file.tensors[name]
                expected = pg.tensor(array, dtype=kind).raw().tobytes()
                assert tuple(info.shape) == array.shape
                assert info.data.tobytes() == expected, name
