"""What the property tests draw: shapes, arrays, slices; and how they run a node."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import pyggml as pg

FLOATS = ("f32", "f16", "bf16", "f8_e4m3")
Array = np.ndarray[Any, Any]

lengths = st.integers(0, 5)
shapes = st.lists(lengths, max_size=4).map(tuple)
shapes_with_axes = st.lists(lengths, min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)
wild_floats = st.floats(width=32)


def values(shape: tuple[int, ...], seed: int) -> Array:
    """Normal values, among them some that are equal, and zeros."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.3, np.round(x), x).astype(np.float32)


def wild(shape: tuple[int, ...], seed: int) -> Array:
    """Any bit patterns of F32, NaN and infinities among them."""
    bits = np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32)
    return np.asarray(bits, np.uint32).view(np.float32)


def run(node: pg.Node, **feeds: Array) -> Array:
    """The value of a node."""
    return np.asarray(node.graph.compile(node, threads=1)(**feeds))


def same(got: Array, expected: Array) -> bool:
    """Shape and every bit; NaN equals NaN."""
    a, b = np.asarray(got), np.asarray(expected)
    nan = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    bits = f"u{a.dtype.itemsize}"
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and bool(np.all((np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits))
                        .reshape(nan.shape) | nan))
    )  # fmt: skip


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A numpy index of slices, numbers, None and an ellipsis that the shape allows."""
    parts: list[Any] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.integers(0, 3))
        if kind == 0 and n > 0:
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == 1:
            parts.append(slice(None))
        else:
            bound = st.none() | st.integers(-n - 2, n + 2)
            parts.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
    if draw(st.booleans()):
        parts.append(Ellipsis)
    return tuple(parts)


@st.composite
def regions(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[int], tuple[int, ...]]:
    """A destination's shape, start and step on each axis, and a shape that fits there."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple))
    start = [draw(st.integers(0, n - 1)) for n in shape]
    step = [draw(st.integers(1, 3)) for _ in shape]
    room = [-(-(n - a) // s) for n, a, s in zip(shape, start, step, strict=True)]
    return shape, start, step, tuple(draw(st.integers(1, n)) for n in room)
