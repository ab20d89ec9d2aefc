"""Program.profile: what is counted, the rows, the table; nothing here reads a clock."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import pyggml as pg
from pyggml import _core
from pyggml.profile import Peak, Profile
from pyggml.rows import OPS


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def model() -> tuple[pg.Graph, pg.Node]:
    g = pg.Graph()
    x, w = g.input("x", (5, 64)), g.const(rand(7, 64))
    hidden = pg.ops.rms_norm(x)
    hidden.name = "blk.0.norm"
    return g, pg.ops.silu(pg.ops.mul_mat(w, hidden).T)


def cost_of(node: pg.Node, **feeds: object) -> pg.profile.Cost:
    """Of one call of the node itself."""
    return node.graph.compile(node, threads=1).profile(feeds, runs=1, peak=False).nodes[-1]


def test_rows_by_node_and_by_op() -> None:
    g, y = model()
    z = y + y + 1.0
    profile = g.compile(z, threads=2).profile(runs=3, x=rand(5, 64))
    assert (profile.runs, profile.threads) == (3, 2)
    assert [(n.op, n.name, n.shape, n.dtype) for n in profile.nodes] == [
        ("rms_norm", "blk.0.norm", (5, 64), "f32"),
        ("mul_mat", "", (5, 7), "f32"),
        ("silu", "", (7, 5), "f32"),
        ("add", "", (7, 5), "f32"),
        ("scale", "", (7, 5), "f32"),
    ]
    assert all(n.calls == 3 and n.seconds > 0 for n in profile.nodes)
    assert sum(n.seconds for n in profile.nodes) == pytest.approx(profile.seconds)
    assert sum(n.share for n in profile.nodes) == pytest.approx(1)
    assert sum(o.share for o in profile.ops) == pytest.approx(1)
    assert sorted(o.op for o in profile.ops) == sorted(n.op for n in profile.nodes)
    assert [o.seconds for o in profile.ops] == sorted(o.seconds for o in profile.ops)[::-1]
    two = g.compile(pg.ops.silu(y), threads=1).profile(x=rand(5, 64), peak=False)
    (row,) = (o for o in two.ops if o.op == "silu")
    assert row.calls == 20
    assert row.peak_share is None
    assert (row.shape, row.dtype, row.name) == (None, None, "")
    assert row.bytes == 20 * 2 * 35 * 4


def test_costs() -> None:
    g = pg.Graph()
    x, ids = g.input("x", (6, 32)), g.input("ids", (2,), "i32")
    feeds = {"x": rand(6, 32)}
    with_ids = feeds | {"ids": [0, 1]}
    table = pg.zeros((100, 32), "f16")
    w = g.const(pg.tensor(rand(4, 32), dtype="q8_0"))
    cases = [
        (cost_of(x + x[:1], **feeds), 4 * 32 * (6 + 1 + 6), 6 * 32),
        (cost_of(pg.ops.sum_rows(x), **feeds), 4 * (6 * 32 + 6), 6 * 32),
        (cost_of(pg.ops.mul_mat(w, x), **feeds), 4 * 34 + 4 * 6 * 32 + 4 * 24, 2 * 6 * 4 * 32),
        (cost_of(pg.ops.cast(x, "f16"), **feeds), 6 * 32 * 6, 0),
        (cost_of(pg.ops.cont(x.T), **feeds), 6 * 32 * 8, 0),
        (cost_of(pg.ops.get_rows(table, ids), ids=[1, 2]), 2 * 32 * (2 + 4) + 8, 0),
        (cost_of(pg.ops.concat(x, x), **feeds), 4 * 6 * 32 * 4, 0),
    ]
    for row, n_bytes, flops in cases:
        assert (row.op, row.bytes, row.flops) == (row.op, n_bytes, flops)
    biases = g.const(rand(50, 32))
    row = cost_of(pg.ops.add_id(x[:2], biases, ids), ids=[0, 1], x=rand(6, 32))
    assert (row.bytes, row.flops) == (3 * 2 * 32 * 4 + 8, 2 * 32)
    q, kv = g.input("q", (4, 3, 8)), g.input("kv", (2, 10, 8))
    row = cost_of(pg.ops.flash_attn_ext(q, kv, kv, scale=1.0), q=rand(4, 3, 8), kv=rand(2, 10, 8))
    assert row.flops == 2 * 4 * 3 * 10 * (8 + 8)
    experts, tokens = g.const(rand(8, 4, 32)), g.input("tokens", (2, 1, 32))
    chosen = g.input("chosen", (2, 1), "i32")
    row = cost_of(
        pg.ops.mul_mat_id(experts, tokens, chosen), tokens=rand(2, 1, 32), chosen=[[0], [7]]
    )
    assert row.bytes == pytest.approx(4 * (2 * 4 * 32 + 2 * 32 + 2 * 4 + 2))
    assert row.flops == 2 * 2 * 4 * 32
    row = cost_of(pg.ops.out_prod(x, x), **feeds)
    assert row.flops == 2 * 6 * 32 * 32
    for op, touched, flops in ((pg.ops.acc, 3, 8), (pg.ops.set, 2, 0)):
        whole = pg.Graph().const(pg.zeros((50, 32)))
        row = cost_of(op(whole, np.ones((2, 4), np.float32), start=(1, 2)))
        assert (row.bytes, row.flops) == (touched * 8 * 4, flops)
    pg.ops.set_rows(table, x[:2], ids)
    (row,) = g.compile(x, threads=1).profile(with_ids, runs=2, peak=False).nodes
    assert (row.op, row.bytes) == ("set_rows", 2 * (2 * 32 * (4 + 2) + 8))


def test_to_dict_is_json() -> None:
    g, y = model()
    data = g.compile(y, threads=1).profile(runs=2, x=rand(5, 64)).to_dict()
    assert json.loads(json.dumps(data)) == data | {
        "nodes": [n | {"shape": list(n["shape"])} for n in data["nodes"]]
    }
    assert set(data) == {"runs", "threads", "seconds", "peak", "ops", "nodes"}
    assert data["peak"]["bytes_per_second"] > 0
    assert {"gb_per_second", "gflop_per_second", "peak_share"} <= set(data["ops"][0])


def record(op: str, name: str, ns: int, moved: float, flops: float) -> dict:
    return {
        "id": 0, "op": OPS[op].number, "name": name, "shape": (2, 3), "dtype": 0, "block": 0,
        "block_offset": 0, "block_bytes": 0, "first": 0, "last": 0, "offset": 0, "bytes": 0,
        "moved_bytes": moved, "flops": flops, "runs": 10, "ns": ns,
    }  # fmt: skip


def test_the_table() -> None:
    records = [
        record("add", "first\nsecond", 10_000, 500.0, 100.0),
        record("mul_mat", "", 30_000, 100.0, 24_000.0),
    ]
    profile = Profile(records, 2, Peak(2, 1e9, 10e9))
    assert repr(profile) == profile.table() == (
        "10 runs, 2 threads, 0.004 ms a run; peak 1.0 GB/s copied, 10.0 GFLOP/s\n"
        "op       calls  us/call  time %  GB/s  GFLOP/s  peak %\n"
        "mul_mat     10      3.0    75.0  0.03     8.00    80.0\n"
        "add         10      1.0    25.0  0.50     0.10    50.0"
    )  # fmt: skip
    assert profile.table("node").splitlines()[1:] == [
        "op       calls  us/call  time %  GB/s  GFLOP/s  peak %  result      name",
        "mul_mat     10      3.0    75.0  0.03     8.00    80.0  (2, 3) f32",
        "add         10      1.0    25.0  0.50     0.10    50.0  (2, 3) f32  first?second",
    ]
    assert Profile(records, 2, None).table().splitlines()[2].endswith("8.00       -")
    with pytest.raises(ValueError, match="'op' or 'node'"):
        profile.table("name")


def test_a_program_that_runs_nothing() -> None:
    g = pg.Graph()
    profile = g.compile(g.input("x", (2,)), threads=1).profile(x=[1, 2], peak=False)
    assert (profile.nodes, profile.ops, profile.seconds, profile.runs) == ((), (), 0, 0)
    assert "op" in repr(profile)


def test_results_and_later_runs_are_as_before() -> None:
    g = pg.Graph()
    x, table = g.input("x", (1, 4)), pg.zeros((1, 4))
    pg.ops.cpy(g.const(table) + x, table)
    program = g.compile(x * 2.0, threads=2)
    assert program.profile(runs=4, x=np.ones((1, 4), np.float32)).runs == 4
    assert table.numpy().tolist() == [[5] * 4]  # one run to warm up
    assert program(x=np.ones((1, 4), np.float32)).tolist() == [[2] * 4]
    again = program.profile(runs=2, x=np.ones((1, 4), np.float32))  # from zero
    assert {n.calls for n in again.nodes} == {2}
    assert {n["runs"] for n in program._core.nodes() if n["ns"]} == {2}


def test_profile_refuses() -> None:
    g, y = model()
    program = g.compile(y, threads=1)
    for runs in (0, -1):
        with pytest.raises(pg.ParameterError, match=r"runs must be in \[1, 1000000\]"):
            program.profile(runs=runs, peak=False, x=rand(5, 64))
    with pytest.raises(pg.GraphError, match="missing x"):
        program.profile()
    with pytest.raises(pg.ShapeError):
        program.profile(x=[1])
    rows = g.compile(pg.ops.get_rows(rand(2, 2), g.input("ids", (1,), "i32")))
    with pytest.raises(pg.RowIndexError):
        rows.profile(ids=[2], peak=False)
    assert rows.profile(ids=[1], peak=False).runs == 10


def test_inputs_named_like_the_arguments() -> None:
    g = pg.Graph()
    y = g.input("runs", (2,)) + g.input("peak", (2,)) + g.input("feeds", (2,))
    feeds = {"runs": [1, 2], "peak": [3, 4]}
    assert g.compile(y).profile(feeds, feeds=[0, 0], runs=5, peak=False).runs == 5


def test_peaks() -> None:
    for threads in (1, 2):
        assert all(0 < peak < math.inf for peak in _core.measure_peak(threads))
    for threads in (0, -1, 257):
        with pytest.raises(pg.ParameterError):
            _core.measure_peak(threads)
