"""Refused memory: every allocation of building, compiling, running and profiling failed in turn;
far too large asks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest

import pyggml as pg
from pyggml.profile import measured_peak

FEED = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)


@contextmanager
def failing(n: int) -> Iterator[None]:
    pg._core.alloc_fail_in(n)
    try:
        yield
    finally:
        pg._core.alloc_fail_in(0)


def live() -> int:
    gc.collect()
    return pg.counters()["live"]


def make_nodes(g: pg.Graph) -> pg.Node:
    """More nodes than the first allocation of a graph has room for, constants among them."""
    x = g.input("x", (2, 32))
    node = pg.ops.rope(x.reshape(2, 1, 32), [0, 1]).reshape(2, 32)
    for i in range(40):
        node = pg.ops.mul_mat(np.eye(32, dtype=np.float32), node) + float(i)
    return pg.ops.set_rows(pg.zeros((2, 32)), node, [1, 0])


def fail_each(make: Callable[[], object]) -> int:
    """Fails allocation 1, 2, 3 ... of make() until it succeeds; returns how many there were."""
    make()
    before = live()
    for n in count(1):
        assert n < 200
        try:
            with failing(n):
                made = make()
        except pg.OutOfMemoryError as e:
            text = str(e)
            del e
        else:
            del made
            assert live() == before
            return n - 1
        assert "bytes refused by the test hook" in text
        assert live() == before, f"allocation {n} leaks"
    raise AssertionError


def test_building() -> None:
    def build() -> pg.Node:
        return make_nodes(pg.Graph())

    assert fail_each(build) == 3  # the graph, its first nodes, twice the room


def test_compiling() -> None:
    g = pg.Graph()
    node = make_nodes(g)
    expected = g.compile(node)(x=FEED)
    assert fail_each(lambda: g.compile(node)) >= 12
    assert np.array_equal(g.compile(node)(x=FEED), expected)


def test_compiling_into_a_shared_arena() -> None:
    g = pg.Graph()
    node = make_nodes(g)
    arena = pg.Arena()
    first = g.compile(g.nodes()[3], arena=arena)
    expected = first(x=FEED)

    def grow() -> pg.Program:
        return g.compile(node, threads=7, arena=arena)

    size = arena.nbytes
    for n in count(1):
        try:
            with failing(n):
                grow()
        except pg.OutOfMemoryError:
            assert arena.nbytes == size  # what the other programs have is still there
            assert np.array_equal(first(x=FEED), expected)
        else:
            break
    assert n > 8
    assert arena.nbytes > size
    assert np.array_equal(first(x=FEED), expected)


def test_the_graph_stays_usable() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 32))
    while len(g) < 64:
        x = x + 1.0
    for build in (
        lambda: x + 1.0,
        lambda: g.input("y", (1,)),
        lambda: g.const(np.ones(3, np.float32)),
        lambda: x[0],
    ):
        with failing(1), pytest.raises(pg.OutOfMemoryError, match="graph nodes: "):
            build()
        assert len(g) == 64
    with failing(1), pytest.raises(pg.OutOfMemoryError):
        g.compile(x)
    assert np.array_equal(g.compile(x + 1.0)(x=np.zeros((2, 32), np.float32)), np.full((2, 32), 64))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", [{}, {"planned": False}, {"guarded": True}])
def test_runs_and_plans_need_no_memory(threads, how) -> None:
    g = pg.Graph()
    program = g.compile(make_nodes(g), threads=threads, **how)
    assert fail_each(lambda: program(x=FEED)) == 0
    assert fail_each(program.memory_plan) == 0
    plan, expected = program.memory_plan().to_dict(), program(x=FEED)
    with failing(1):
        assert np.array_equal(program(x=FEED), expected)
        assert program.memory_plan().to_dict() == plan


@pytest.mark.parametrize("threads", [1, 3])
def test_profiling(threads) -> None:
    g = pg.Graph()
    program = g.compile(make_nodes(g), threads=threads)
    expected = program(x=FEED)
    with failing(1), pytest.raises(pg.OutOfMemoryError, match=r"^profile: "):
        program.profile(x=FEED, peak=False)
    assert np.array_equal(program(x=FEED), expected)
    assert program.profile(x=FEED, peak=False).runs == 10
    assert fail_each(lambda: program.profile(x=FEED, peak=False)) == 0  # it keeps its counters


def test_first_profiles() -> None:
    g = pg.Graph()
    node = make_nodes(g)

    def profile() -> object:
        measured_peak.cache_clear()
        return g.compile(node, threads=2).profile(x=FEED)

    compiling = fail_each(lambda: g.compile(node, threads=2))
    assert fail_each(profile) == compiling + 2  # the peak's memory, the counters


def test_measuring_the_peak() -> None:
    assert fail_each(lambda: pg._core.measure_peak(2)) == 1
    with failing(1), pytest.raises(pg.OutOfMemoryError, match=r"^peak: 134217728 bytes"):
        pg._core.measure_peak(2)


def test_arena() -> None:
    with failing(1), pytest.raises(pg.OutOfMemoryError, match="arena"):
        pg.Arena()


@pytest.mark.parametrize("planned", [True, False])
def test_more_than_there_is(planned) -> None:
    g = pg.Graph()
    x = g.input("x", (65536, 65536, 64))
    before = live()
    wanted = 2**40 if planned else 2**41
    with pytest.raises(pg.OutOfMemoryError, match=r"arena: (\d+) bytes asked for, (\d+)") as e:
        g.compile(pg.ops.silu(x), threads=1, planned=planned)
    asked = int(str(e.value).split()[1])
    assert wanted <= asked < wanted + (1 << 20)
    del e
    assert live() == before


def test_the_plan_does_not_wrap() -> None:
    g = pg.Graph()
    inputs = [g.input(f"x{i}", (2**61,), "f8_e4m3") for i in range(12)]
    with pytest.raises(pg.OutOfMemoryError):
        g.compile(inputs)


def test_room() -> None:
    room = pg._core.memory_room()
    assert 1 << 20 < room < 1 << 64
