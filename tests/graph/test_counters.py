"""A second run allocates nothing, builds nothing and compiles nothing."""

from __future__ import annotations

import gc

import numpy as np

import pyggml as pg


def everything() -> tuple[pg.Program, dict[str, np.ndarray]]:
    """A program of many ops, of every kind of plan: scratch, shared memory, constants, phases."""
    rng = np.random.default_rng(1)
    g = pg.Graph()
    x, ids = g.input("x", (4, 64)), g.input("ids", (4,), "i64")
    w = pg.tensor(rng.standard_normal((64, 64)), dtype="f8_e4m3")
    cache = pg.zeros((8, 64), "f8_e4m3")
    h = pg.ops.mul_mat(w, pg.ops.rms_norm(x) * 2)
    h = pg.ops.rope(h.reshape(4, 2, 32), ids).reshape(4, 64)
    kept = pg.ops.set_rows(cache, h, ids)
    q = pg.ops.permute(h.reshape(1, 4, 2, 32), (0, 2, 1, 3))
    k = pg.ops.permute(kept.reshape(1, 8, 2, 32), (0, 2, 1, 3))
    a = pg.ops.flash_attn_ext(q, k, k, scale=0.2).reshape(4, 64)
    s = pg.ops.soft_max(pg.ops.swiglu(a, pg.ops.silu(h) * h - h / 3)) + pg.ops.get_rows(kept, ids)
    y = pg.ops.transpose(pg.ops.cont(pg.ops.cast(s, "f16")))[::2]
    pg.ops.cpy(x[0], pg.zeros((64,)))
    assert len({n.op for n in g.nodes()}) >= 22  # with inputs and constants
    feeds = {"x": rng.standard_normal((4, 64)).astype(np.float32), "ids": np.arange(4)}
    return g.compile([y, s], threads=3), feeds


def test_the_second_run_makes_nothing() -> None:
    program, feeds = everything()
    first = program(**feeds)
    before = pg.counters()
    for _ in range(5):
        again = program(**feeds)
    assert pg.counters() == before
    assert [r.tobytes() for r in again] == [r.tobytes() for r in first]


def test_the_first_run_makes_nothing_either() -> None:
    program, feeds = everything()
    before = pg.counters()
    program(**feeds)
    assert pg.counters() == before


def test_counters_count() -> None:
    gc.collect()
    start = pg.counters()
    g = pg.Graph()
    x = g.input("x", (3,))
    node = x + x
    built = pg.counters()
    assert built["nodes"] == start["nodes"] + 2
    assert built["programs"] == start["programs"]
    assert built["allocations"] == start["allocations"] + 2  # the graph and its nodes
    assert built["live"] == start["live"] + 2
    program = g.compile(node)
    compiled = pg.counters()
    assert compiled["programs"] == built["programs"] + 1
    assert compiled["allocations"] > compiled["live"] - built["live"] + built["allocations"]
    del g, x, node, program
    gc.collect()
    assert pg.counters()["live"] == start["live"]
