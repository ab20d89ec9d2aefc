"""Graphs of any ops: planned, on any number of threads, they give the bits of the unplanned run."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties import draw as d

import pyggml as pg

UNARY = ("neg", "abs", "sqr", "silu", "gelu", "tanh", "soft_max", "rms_norm", "cumsum", "cont")
BINARY = ("add", "sub", "mul", "swiglu")


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """What to do with which earlier values; numbers are taken modulo what there is."""
    at = st.integers(0, 63)
    unary = st.tuples(st.sampled_from(UNARY), at)
    binary = st.tuples(st.sampled_from(BINARY), at, at)
    other = st.tuples(st.sampled_from(("turn", "half", "write", "rows", "cast")), at, at)
    return draw(st.lists(unary | binary | other, min_size=1, max_size=16))


class Built:
    """A graph over one input and one cache, both 8 x 8; every value has that shape."""

    def __init__(self, script: list[tuple[Any, ...]]) -> None:
        self.g = pg.Graph()
        self.cache = pg.tensor(np.zeros((8, 8), np.float32))
        self.nodes = [self.g.input("x", (8, 8)), self.g.const(self.cache)]
        for name, *operands in script:
            picked = [self.nodes[k % len(self.nodes)] for k in operands]
            made = getattr(self, name, None)
            node = made(*picked) if made else getattr(pg.ops, name)(*picked)
            assert node.shape == (8, 8)
            self.nodes.append(node)

    def turn(self, a: pg.Node, _: pg.Node) -> pg.Node:
        return a.T

    def half(self, a: pg.Node, b: pg.Node) -> pg.Node:
        return pg.ops.concat(a[::2], b[1::2], 0, dtype="f32")

    def write(self, a: pg.Node, b: pg.Node) -> pg.Node:
        where = self.g.const(self.cache) if a.id % 2 else pg.ops.cont(a)
        pg.ops.cpy(pg.ops.cont(b)[2:5], where[1:4])
        return where

    def rows(self, a: pg.Node, _: pg.Node) -> pg.Node:
        return pg.ops.get_rows(a, np.arange(8)[::-1].copy())

    def cast(self, a: pg.Node, b: pg.Node) -> pg.Node:
        return pg.ops.cast(a, d.FLOATS[b.id % 4])

    def run(self, outputs: list[int], feed: d.Array, **options: Any) -> list[bytes]:
        self.cache.numpy()[...] = 0.5
        picked = [self.nodes[k % len(self.nodes)] for k in outputs]
        program = self.g.compile(picked, **options)
        results = program(**({"x": feed} if program.inputs else {}))
        return [np.asarray(r).tobytes() for r in results] + [self.cache.raw().tobytes()]


@given(steps(), st.lists(st.integers(0, 63), min_size=1, max_size=4), d.seeds)
def test_planned_is_unplanned(script: list[tuple[Any, ...]], outputs: list[int], seed: int) -> None:
    built, feed = Built(script), d.values((8, 8), seed)
    with np.errstate(all="ignore"):
        expected = built.run(outputs, feed, planned=False, threads=1)
        for threads in (1, 2, 5):
            assert built.run(outputs, feed, threads=threads) == expected
