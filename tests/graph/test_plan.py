"""The memory planner: random graphs give the same bits with and without it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pyggml as pg

FLOATS = ("f32", "f32", "f32", "f16", "bf16", "f8_e4m3", "q8_0")
SHAPES = ((8, 32), (32,), (4, 8, 32), (1, 32), (8, 1), (32, 32))


class RandomGraph:
    """A random DAG, built the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = pg.Graph()
        self.nodes: list[pg.Node] = []
        self.feeds: dict[str, np.ndarray] = {}
        for i in range(3):
            shape = SHAPES[self.rng.integers(len(SHAPES))]
            self.feeds[f"x{i}"] = self.values(shape)
            self.nodes.append(self.g.input(f"x{i}", shape))
        self.caches = [pg.tensor(self.values((8, 32)), name=f"cache{i}") for i in range(2)]
        for cache in self.caches:
            self.nodes.append(self.g.const(cache))
        for _ in range(int(self.rng.integers(6, 30))):
            self.grow()
        count = int(self.rng.integers(1, 5))
        self.outputs = [self.pick() for _ in range(count)]

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def pick(self, *, shape: tuple[int, ...] | None = None, block: bool = True) -> pg.Node:
        pool = self.nodes[-8:] if self.rng.random() < 0.6 else self.nodes
        if shape is not None:
            pool = [n for n in self.nodes if n.shape == shape]
        if not block:
            pool = [n for n in pool if not n.dtype.is_block] or self.nodes[:3]
        return pool[self.rng.integers(len(pool))]

    def grow(self) -> None:
        kinds = ("binary", "unary", "view", "write", "rows", "matmul", "cast", "input")
        kind = self.rng.choice(kinds, p=(0.25, 0.25, 0.15, 0.1, 0.07, 0.08, 0.05, 0.05))
        made = getattr(self, f"add_{kind}")()
        if made.ndim and 0 < np.prod(made.shape) <= 1 << 14:
            self.nodes.append(made)

    def add_input(self) -> pg.Node:
        """A late one: its memory is filled before the first step all the same."""
        name = f"late{len(self.feeds)}"
        self.feeds[name] = self.values((8, 32))
        return self.g.input(name, (8, 32))

    def add_binary(self) -> pg.Node:
        a = self.pick()
        b = self.pick(shape=a.shape) if self.rng.random() < 0.7 else self.pick()
        fits = all(
            m == n or 1 in (m, n) for m, n in zip(a.shape[::-1], b.shape[::-1], strict=False)
        )
        b = b if fits else a
        op = (pg.ops.add, pg.ops.sub, pg.ops.mul, pg.ops.swiglu)[self.rng.integers(4)]
        return op(a, b if op is not pg.ops.swiglu or b.shape == a.shape else a)

    def add_unary(self) -> pg.Node:
        x = self.pick()
        which = self.rng.integers(6)
        if which == 0:
            return pg.ops.scale(x, 0.75, 0.125)
        if which == 1:
            return pg.ops.silu(x)
        if which == 2:
            return pg.ops.rms_norm(x)
        if which == 3:
            same = x.ndim == 2 and x.dtype is pg.f32
            return pg.ops.soft_max(x, x if same else None)
        if which == 4 and x.ndim == 3:
            turned = x.shape[-1] // 2 * 2 or 2
            return pg.ops.rope(x, np.arange(x.shape[0]), mode="neox", n_dims=turned)
        return pg.ops.cont(x)

    def add_view(self) -> pg.Node:
        x = self.pick(block=False)
        which = self.rng.integers(4)
        if which == 0 and x.shape[0] > 1:
            return x[1:] if self.rng.random() < 0.5 else x[::2]
        if which == 1 and x.ndim > 1:
            return x.T
        if which == 2:
            return x.reshape(-1)
        return x[..., : max(1, x.shape[-1] // 2)]

    def add_write(self) -> pg.Node:
        """Into a cache, an intermediate value or a part of one."""
        x = self.pick(block=False)
        if self.rng.random() < 0.5:
            dst = self.g.const(self.caches[self.rng.integers(2)])
        else:
            dst = pg.ops.cont(self.pick(block=False))
        if dst.ndim == 2 and self.rng.random() < 0.3:
            dst = dst[:, :: int(self.rng.integers(1, 3))]
        if x.shape != dst.shape:
            x = self.g.const(pg.tensor(self.values(dst.shape)))
        try:
            return pg.ops.cpy(x, dst)
        except pg.GraphError:  # x lies in the memory of dst
            return pg.ops.cpy(pg.ops.cont(x), dst)

    def add_rows(self) -> pg.Node:
        table = self.pick(block=False)
        if table.ndim != 2:
            table = self.nodes[-1] if self.nodes[-1].ndim == 2 else self.g.const(self.caches[0])
        ids = self.rng.permutation(table.shape[0])[: max(1, table.shape[0] // 2)]
        if self.rng.random() < 0.5:
            return pg.ops.get_rows(table, ids)
        new = pg.tensor(self.values((len(ids), table.shape[1])))
        return pg.ops.set_rows(pg.ops.cont(table), new, ids)

    def add_matmul(self) -> pg.Node:
        x, w = self.pick(), self.values((16, self.pick().shape[-1]))
        w = self.values((16, x.shape[-1]))
        return pg.ops.mul_mat(pg.tensor(w), x)

    def add_cast(self) -> pg.Node:
        x = self.pick()
        to = pg.dtype(FLOATS[self.rng.integers(len(FLOATS))])
        return pg.ops.cast(x, to if x.shape[-1] % to.block == 0 else pg.f16)

    def run(
        self, *, planned: bool, threads: int, times: int = 1, guarded: bool = False
    ) -> list[bytes]:
        """Bytes of the outputs and of the caches afterwards, which are put back first."""
        for cache, saved in zip(self.caches, self.saved(), strict=True):
            cache.numpy()[...] = saved
        program = self.g.compile(self.outputs, threads, planned=planned, guarded=guarded)
        feeds = {name: self.feeds[name] for name in program.inputs}
        for _ in range(times):
            results = program(**feeds)
        self.arena_bytes = program.arena_bytes
        raw = [r.raw() if isinstance(r, pg.Tensor) else np.asarray(r) for r in results]
        return [r.tobytes() for r in raw] + [c.raw().tobytes() for c in self.caches]

    def saved(self) -> list[np.ndarray]:
        return [np.full((8, 32), i + 0.5, np.float32) for i in range(len(self.caches))]


@pytest.mark.parametrize("block", range(8))
def test_planned_is_unplanned(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        with np.errstate(all="ignore"):
            graph = RandomGraph(seed)
        expected = graph.run(planned=False, threads=1)
        unplanned = graph.arena_bytes
        for threads in (1, 2, 5) if seed % 6 == 0 else (1 + seed % 3,):
            assert graph.run(planned=True, threads=threads) == expected, f"seed {seed}"
            assert graph.arena_bytes <= unplanned + threads * (1 << 20)
        guarded = graph.run(planned=seed % 3 > 0, threads=1 + seed % 2, guarded=True)
        assert guarded == expected, f"seed {seed}, guarded"


def test_the_graphs_are_worth_it() -> None:
    """The generator reaches writes, views, in-place ops and block formats often enough."""
    seen: dict[str, int] = {}
    for seed in range(100):
        for node in RandomGraph(seed).g.nodes():
            seen[node.op] = seen.get(node.op, 0) + 1
            seen[node.dtype.name] = seen.get(node.dtype.name, 0) + 1
    for name in ("view", "reshape", "permute", "cpy", "set_rows", "get_rows", "mul_mat", "add"):
        assert seen[name] > 20, (name, seen)
    for name in ("scale", "soft_max", "rms_norm", "swiglu", "f16", "f8_e4m3", "q8_0"):
        assert seen[name] > 5, (name, seen)


def test_second_run_is_the_first() -> None:
    """What a run leaves in the arena does not reach the next one."""
    for seed in range(500, 530):
        graph = RandomGraph(seed)
        once = graph.run(planned=True, threads=2)
        if any(n.op in ("cpy", "set_rows") for n in graph.g.nodes()):
            continue  # a second write may start from other values
        assert graph.run(planned=True, threads=2, times=3) == once, f"seed {seed}"


def arena(outputs: pg.Node | list[pg.Node], *, planned: bool = True) -> int:
    """Bytes of the arena without scratch: the same program over no elements has only that."""
    node = outputs[0] if isinstance(outputs, list) else outputs
    return node.graph.compile(outputs, threads=1, planned=planned).arena_bytes


def scratch() -> int:
    """What an elementwise op of one thread needs besides its tensors."""
    g = pg.Graph()
    return arena(pg.ops.silu(pg.ops.silu(g.input("x", (0,)))))


MIB = 1 << 20
IDS = np.arange(7, -1, -1, dtype=np.int32)


def test_a_small_tensor_lies_where_a_large_one_comes_later() -> None:
    g = pg.Graph()
    x = g.input("x", (256, 1024))  # 1 MiB, dead when the large one is made
    turned = pg.ops.cont(x.T)
    large = pg.ops.concat(turned, turned, 0)  # 2 MiB
    program = g.compile(large, 1)
    assert program.arena_bytes < 3.25 * (1 << 20)
    feed = np.arange(256 * 1024, dtype=np.float32).reshape(256, 1024)
    assert np.array_equal(program(x=feed), np.concatenate([feed.T, feed.T]))


def test_a_chain_runs_in_place() -> None:
    g = pg.Graph()
    node = g.input("x", (MIB,))
    for _ in range(10):
        node = pg.ops.silu(node)
    assert arena(node) - scratch() == 4 * MIB
    assert arena(node, planned=False) - scratch() == 11 * 4 * MIB


def test_dead_values_are_reused() -> None:
    g = pg.Graph()
    node = g.input("x", (MIB,))
    for _ in range(10):
        node = pg.ops.cont(node)  # cannot run in place: two values live at a time
    assert 8 * MIB <= arena(node) < 9 * MIB


def test_late_inputs_are_filled_early() -> None:
    g = pg.Graph()
    node = pg.ops.cont(pg.ops.cont(g.input("x", (1000,))))
    late = g.input("late", (1000,))
    feed = np.arange(1000, dtype=np.float32)
    r = g.compile(node + late)(x=feed, late=np.full(1000, 5, np.float32))
    assert np.array_equal(r, feed + 5)


def test_live_values_are_not() -> None:
    g = pg.Graph()
    x = g.input("x", (MIB,))
    nodes = [pg.ops.cont(x) for _ in range(5)]
    total = nodes[0]
    for node in nodes[1:]:
        total = total + node
    assert arena(nodes) >= 5 * 4 * MIB
    values = np.arange(MIB, dtype=np.float32)
    results = g.compile([*nodes, total])(x=values)
    assert all(np.array_equal(r, values) for r in results[:5])
    assert np.array_equal(results[5], values * 5)


@pytest.mark.parametrize(
    "build",
    [
        lambda y: (pg.ops.silu(y), [y]),  # y is an output
        lambda y: (pg.ops.silu(y), [y[3:5]]),  # a view of y is an output
        lambda y: (pg.ops.silu(y), [y + 1.0]),  # y is read later
        lambda y: (pg.ops.silu(y.T), [y]),
        lambda y: (pg.ops.silu(y[2:6]), [y]),
        lambda y: (pg.ops.add(y, y[0:1]), []),  # the other operand is a part of y
        lambda y: (pg.ops.add(y, y.T), []),  # another angle on y
        lambda y: (pg.ops.sub(y[0:1], y), []),
        lambda y: (pg.ops.mul(y[::2], y[1::2]), []),
        lambda y: (pg.ops.soft_max(y, y), []),
        lambda y: ((lambda z: pg.ops.add_id(z, z, IDS))(y * 1.0), []),  # rows of what it writes
        lambda y: ((lambda z: pg.ops.soft_max(z, z))(pg.ops.log(y)), []),
        lambda y: (pg.ops.swiglu(y, y.T), []),
        lambda y: (pg.ops.add(y, pg.ops.cont(y)[0:1]), [pg.ops.cpy(y.T, pg.ops.cont(y))]),
    ],
)
def test_in_place_is_not_for_all(build) -> None:
    g = pg.Graph()
    y = pg.ops.cont(g.input("x", (8, 8)))
    node, more = build(y)
    values = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    planned = g.compile([node, *more])(x=values)
    plain = g.compile([node, *more], planned=False)(x=values)
    assert [p.tobytes() for p in planned] == [p.tobytes() for p in plain]


def test_plan_never_overlaps_in_time() -> None:
    """A value that lives through a storm of others keeps its bits."""
    rng = np.random.default_rng(11)
    g = pg.Graph()
    x = g.input("x", (64, 64))
    kept = [pg.ops.scale(x[:, : int(rng.integers(1, 64))], i + 1.0) for i in range(12)]
    storm = x
    for i in range(60):
        storm = pg.ops.cont(storm) + kept[i % 12][0, 0]
        if i % 5 == 0:
            storm = pg.ops.scale(storm, 0.5)
    values = rng.standard_normal((64, 64)).astype(np.float32)
    results = g.compile([storm, *kept])(x=values)
    for i, r in enumerate(results[1:]):
        assert np.array_equal(r, values[:, : r.shape[1]] * np.float32(i + 1))


def test_repr_counts_nodes() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3))
    pg.ops.silu(x)  # not reached
    program = g.compile(pg.ops.cont(x), threads=3)
    assert program.n_nodes == 2
    assert re.search(r"\(x \(2, 3\) f32\) -> \(2, 3\) f32; 2 nodes, 3 threads", repr(program))


def test_a_plan_that_fails_names_its_op() -> None:
    g = pg.Graph()
    x, y = (g.input(name, s, "f8_e4m3") for name, s in (("x", (0, 2**62)), ("y", (0, 1, 2**62))))
    by_row = ("soft_max", "fwht", "norm")
    nodes = {name: getattr(pg.ops, name)(x, dtype="f8_e4m3") for name in by_row}
    nodes["rope"] = pg.ops.rope(y, np.zeros(0, np.int32), n_dims=2, dtype="f8_e4m3")
    for name, node in nodes.items():
        with pytest.raises(pg.ShapeError, match=rf"^{name}: a (row|head) of \d+ elements is too"):
            g.compile(node)
