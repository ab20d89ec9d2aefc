"""Program.memory_plan: the planner's layout as data."""

from __future__ import annotations

import json

import numpy as np

import pyggml as pg


def chain() -> tuple[pg.Graph, pg.Program]:
    g = pg.Graph()
    x = g.input("x", (16, 4))
    w = g.const(np.ones((4, 4), np.float32), "weights")
    h = pg.ops.silu(pg.ops.mul_mat(w, x))
    h.name = "hidden"
    view = h[2:4]
    return g, g.compile(pg.ops.sum_rows(view), threads=3)


def test_placements() -> None:
    _, program = chain()
    plan = program.memory_plan()
    x, w, product, hidden, view, total = plan.nodes
    assert [n.op for n in plan.nodes] == ["input", "const", "mul_mat", "silu", "view", "sum_rows"]
    assert [n.id for n in plan.nodes] == list(range(6))
    assert (w.block, w.offset, w.first, w.last, w.bytes) == (None, None, None, None, 64)
    assert w.name == "weights"
    assert hidden.name == "hidden"
    assert (x.first, x.last, x.bytes) == (-1, 2, 256)
    assert product.block == hidden.block == view.block  # in place, and a view of it
    assert (product.first, product.last) == (2, 5)
    assert view.offset - hidden.offset == 2 * 4 * 4
    assert view.bytes == 32
    assert (total.first, total.last) == (5, 6)
    assert len(plan.blocks) == 3
    assert plan.blocks[hidden.block].offset == hidden.offset
    assert "3 blocks" in repr(plan)


def test_sums() -> None:
    _, program = chain()
    plan = program.memory_plan()
    assert plan.arena == program.arena_bytes == plan.results + plan.shared + 3 * plan.scratch
    assert plan.threads == 3
    assert plan.total == plan.arena + plan.constants
    assert plan.unplanned == sum(b.bytes for b in plan.blocks)
    data = plan.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["blocks"][0]["bytes"] == 256


def test_blocks_that_live_together_do_not_overlap() -> None:
    g = pg.Graph()
    x = g.input("x", (100,))
    nodes = [x]
    for i in range(40):
        nodes.append(nodes[i // 2] * 2.0 + nodes[i])
    program = g.compile(nodes[-3:], threads=1)
    plan = program.memory_plan()
    shared = 0
    for i, a in enumerate(plan.blocks):
        assert a.offset % 64 == 0
        assert a.offset + a.bytes <= plan.results
        for b in plan.blocks[:i]:
            apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert apart or a.last < b.first or b.last < a.first
            shared += not apart
    assert shared > 0
    assert plan.results < plan.unplanned
    unplanned = g.compile(nodes[-3:], threads=1, planned=False).memory_plan()
    assert all(b.last == len(unplanned.nodes) for b in unplanned.blocks)
    assert unplanned.results >= unplanned.unplanned


def test_tables_of_ops_are_counted() -> None:
    g = pg.Graph()
    x, pos = g.input("x", (2, 1, 8)), g.input("pos", (2,), "i32")
    plan = g.compile(pg.ops.rope(x, pos, n_dims=8), threads=1).memory_plan()
    assert plan.constants > 0
    assert plan.total == plan.arena + plan.constants


def test_the_graph_may_be_gone() -> None:
    g, program = chain()
    del g
    assert program.memory_plan().nodes[3].name == "hidden"


def test_guards_lie_around_every_block() -> None:
    """See tests/c/guards.h for what they catch."""
    g = pg.Graph()
    x = g.input("x", (7, 5))
    node = pg.ops.soft_max(x * 2.0) + x
    plain, guarded = g.compile(node, threads=2), g.compile(node, threads=2, guarded=True)
    feed = np.arange(35, dtype=np.float32).reshape(7, 5)
    for _ in range(2):
        assert np.array_equal(guarded(x=feed), plain(x=feed))
    before, after = plain.memory_plan(), guarded.memory_plan()
    assert [b.bytes + 128 for b in before.blocks] == [b.bytes for b in after.blocks]
    for node in after.nodes:
        block = after.blocks[node.block]
        assert node.offset >= block.offset + 64
        assert node.offset + node.bytes <= block.offset + block.bytes - 64
    profile = guarded.profile(x=feed, runs=3, peak=False)
    assert all(node.seconds > 0 for node in profile.nodes)


def test_guarded_programs_share_an_arena_with_others() -> None:
    arena = pg.Arena()
    g = pg.Graph()
    x = g.input("x", (40,))
    programs = [
        g.compile(x * 2.0 + x, threads=1, arena=arena, guarded=i % 2 == 1) for i in range(4)
    ]
    for _ in range(3):
        for program in programs:
            assert (program(x=np.ones(40, np.float32)) == 3).all()
