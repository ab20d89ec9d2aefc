"""What docs/threads.md promises of Python threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import pyggml as pg


def at_once(n: int, work: Callable[[int], None]) -> None:
    """Runs work(0..n-1) in threads that start together; their errors come out here."""
    gate, errors = threading.Barrier(n), []

    def guarded(i: int) -> None:
        try:
            gate.wait(60)
            work(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_one_tensor_is_one_constant() -> None:
    for _ in range(20):
        g, t, found = pg.Graph(), pg.zeros((2,)), []
        at_once(4, lambda i, g=g, t=t, found=found: found.append(g.const(t).id))
        assert found == [0] * 4
        assert len(g) == 1


def test_an_input_is_added_once() -> None:
    g, taken = pg.Graph(), []

    def add(i: int) -> None:
        try:
            g.input("x", (1,), default=i)
        except pg.GraphError:
            taken.append(i)

    at_once(4, add)
    assert len(taken) == 3
    assert g.compile(g.nodes()[0], threads=1)() == ({0, 1, 2, 3} - set(taken)).pop()


def test_building_and_compiling_one_graph() -> None:
    g = pg.Graph()
    x = g.input("x", (8,))

    def work(i: int) -> None:
        node = x
        for k in range(60):
            node = node + float(i)
            node.name = f"{i}.{k}"
            if k % 20 == 0:
                got = g.compile(node, threads=1)(x=np.zeros(8, np.float32))
                assert got.tolist() == [i * (k + 1.0)] * 8
                assert len(g.nodes()) > k

    at_once(4, work)
    assert len(g) == 1 + 4 * 60


def test_constants_and_defaults_while_another_thread_compiles() -> None:
    g = pg.Graph()
    x = g.input("x", (8,), default=1.0)
    done = threading.Event()

    def work(i: int) -> None:
        if i == 0:
            for k in range(2000):
                g.const(np.full(8, k, np.float32))
                g.input(f"x{k}", (1,), default=k)
            done.set()
        while not done.is_set():
            assert g.compile(x + 1.0, threads=1)().tolist() == [2.0] * 8

    at_once(2, work)
    assert len(g.compile(g.nodes(), threads=1).defaults) == 2001


def test_operands_are_converted_without_the_lock() -> None:
    """An array of the caller's own may wait for a thread that builds the same graph."""
    g = pg.Graph()
    x = g.input("x", (2,))

    class Slow:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            thread = threading.Thread(target=lambda: built.append(x * 2.0))
            thread.start()
            thread.join(60)
            return np.ones(2, np.float32)

    for build in (lambda: x + Slow(), lambda: pg.ops.matmul(x, Slow())):
        built: list[pg.Node] = []
        y = build()
        assert built
        assert all(node.id < y.id for node in built)


def test_programs_of_many_threads_with_many_threads() -> None:
    """Every run, profile and plan of the one Program gives what it gives alone."""
    base = np.random.default_rng(2).standard_normal((32, 48)).astype(np.float32)

    def work(i: int) -> None:
        g = pg.Graph()
        x = g.input("x", base.shape)
        program = g.compile(pg.ops.soft_max(pg.ops.mul_mat(x, x) * (i + 1.0)), threads=1 + i % 3)
        expected = program(x=base).tobytes()
        plan = program.memory_plan().to_dict()
        for k in range(30):
            assert program(x=base).tobytes() == expected
            if k % 10 == 0:
                assert program.profile(x=base, runs=2, peak=False).runs == 2
                assert program.memory_plan().to_dict() == plan

    at_once(6, work)


def test_a_running_program_refuses_everything() -> None:
    """The inputs of a run are fetched inside it: one that looks back meets the Program running."""
    g = pg.Graph()
    x = g.input("x", (2,))
    program, feed = g.compile(x + x, threads=1), np.ones(2, np.float32)
    met = []

    class Nosy(list):
        def __getitem__(self, i):
            for use in (
                lambda: program(x=feed),
                lambda: program.profile(x=feed, peak=False),
                program.memory_plan,
            ):
                with pytest.raises(pg.GraphError, match="the program is running already"):
                    use()
                met.append(use)
            return super().__getitem__(i)

    out = np.empty(2, np.float32)
    program._core.run(Nosy([feed]), [out])
    assert len(met) == 3
    assert out.tolist() == [2, 2]
    assert program.profile(x=feed, peak=False).runs == 10
