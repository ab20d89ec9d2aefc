"""Programs: binding, outputs, threads, shared arenas, lifetime, fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg

RNG = np.random.default_rng(5)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def double(shape=(2, 3), dtype="f32", name="x") -> pg.Program:
    g = pg.Graph()
    return g.compile(pg.ops.scale(g.input(name, shape, dtype), 2.0), threads=1)


# ---- inputs ----


def test_names_are_checked() -> None:
    g = pg.Graph()
    x, y = g.input("x", (2,)), g.input("y", (2,))
    g.input("unused", (2,))
    program = g.compile(x + y)
    assert list(program.inputs.items()) == [("x", ((2,), pg.f32)), ("y", ((2,), pg.f32))]
    one = np.ones(2, np.float32)
    with pytest.raises(pg.GraphError, match=r"missing y \(this program takes x, y\)"):
        program(x=one)
    with pytest.raises(pg.GraphError, match="unknown unused, z"):
        program(x=one, y=one, unused=one, z=one)
    with pytest.raises(pg.GraphError, match=r"missing x; unknown X"):
        program(y=one, X=one)
    assert np.array_equal(program(x=one, y=one), [2, 2])


def test_an_input_may_be_called_self() -> None:
    assert np.array_equal(double((1,), name="self")(self=[4.0]), [8])


def test_shapes_are_checked() -> None:
    program = double()
    for shape in ((3, 2), (6,), (1, 2, 3), (2,), (), (0,)):
        with pytest.raises(pg.ShapeError, match=r"input 'x': shape \(2, 3\) expected"):
            program(x=np.zeros(shape, np.float32))
    with pytest.raises(pg.ShapeError, match="input 'x'"):
        program(x=pg.zeros((3, 2)))
    with pytest.raises(pg.DTypeError, match="input 'x'"):
        program(x=pg.zeros((2, 3), "f16"))


def test_only_safe_casts() -> None:
    program = double((2,))
    for dtype in ("f2", "i1", "u2", "?", ">f4", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        assert np.array_equal(program(x=np.array([1, 0]).astype(dtype)), [2, 0])
    for dtype in ("f8", "i4", "i8", "u8", "c8", "O", "U1", "M8[s]"):
        with pytest.raises(pg.DTypeError, match="does not convert safely to f32"):
            program(x=np.zeros(2, dtype))
    ids = pg.Graph()
    rows = ids.compile(pg.ops.get_rows(np.eye(3, dtype=np.float32), ids.input("i", (1,), "i32")))
    assert np.array_equal(rows(i=np.array([2], np.int16)), [[0, 0, 1]])
    for dtype in (np.int64, np.float32, np.uint32):
        with pytest.raises(pg.DTypeError):
            rows(i=np.zeros(1, dtype))
    with pytest.raises(pg.DTypeError):
        rows(i=np.int64(1).reshape(1))


def test_lists() -> None:
    assert np.array_equal(double((2,))(x=[0.1, 3]), np.float32([0.2, 6]))
    assert np.array_equal(double(())(x=0.25), np.float32(0.5))
    assert np.array_equal(double((0,))(x=[]), np.zeros(0))
    g = pg.Graph()
    narrow = g.compile(pg.ops.cast(g.input("x", (3,), "f8_e4m3"), "f32"))
    # rounded once, saturated, as by pg.tensor
    assert np.array_equal(narrow(x=[1.0625 + 2**-40, 1e6, -500]), [1.125, 448, -448])
    ids = pg.Graph()
    rows = ids.compile(pg.ops.get_rows(np.eye(3, dtype=np.float32), ids.input("i", (1,), "i32")))
    assert np.array_equal(rows(i=[1]), [[0, 1, 0]])
    for bad in ([1.5], [2**31], ["1"], [None], [1j], [2**70]):
        with pytest.raises(pg.DTypeError):
            rows(i=bad)
    for bad in (["a", "b"], [None, None], [[1], [2, 3]], [1j, 2j]):
        with pytest.raises(pg.DTypeError):
            double((2,))(x=bad)


def test_any_layout_is_an_input() -> None:
    program = double((3, 2))
    base = rand(2, 3)
    for array in (base.T, rand(6, 4)[::2, ::-2], np.broadcast_to(np.float32(3), (3, 2))):
        assert np.array_equal(program(x=array), array * 2)
    raw = np.frombuffer(b"\0" + base.tobytes(), np.float32, offset=1, count=6).reshape(3, 2)
    assert not raw.flags.aligned
    assert np.array_equal(program(x=raw), base.reshape(3, 2) * 2)
    with warnings.catch_warnings(action="ignore"):
        assert np.array_equal(program(x=np.asmatrix(base.T)), base.T * 2)


def test_inputs_are_copied() -> None:
    g = pg.Graph()
    x = g.input("x", (4,))
    program = g.compile(pg.ops.silu(pg.ops.scale(x, 2.0)))
    feed = rand(4)
    before = feed.copy()
    first = program(x=feed)
    assert np.array_equal(feed, before)
    assert np.array_equal(first, program(x=feed))
    result = g.compile(x)(x=feed)
    assert not np.shares_memory(result, feed)


# ---- outputs ----


def test_results_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arena was there, the copy that is handed out is not."""
    g = pg.Graph()
    program = g.compile(g.input("x", (1 << 24,)), threads=1)
    feed = np.zeros(1 << 24, np.float32)
    monkeypatch.setattr(pg._core, "memory_room", lambda: 1000)
    with pytest.raises(pg.OutOfMemoryError, match="67108864 bytes are needed, 1000 are available"):
        program(x=feed)
    assert program(x=feed, out=feed) is feed


def test_outputs_of_every_kind() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 32))
    c = g.const(pg.tensor(np.arange(3, dtype=np.int64)))
    y = pg.ops.silu(x)
    q = pg.ops.cast(x, "q8_0")
    program = g.compile([y, x, c, y.T, y, x[1, ::2], q, pg.ops.cast(x, "bf16"), c[2]])
    feed = rand(2, 32)
    r = program(x=feed)
    assert isinstance(r, tuple)
    assert np.array_equal(r[1], feed)
    assert np.array_equal(r[2], [0, 1, 2])
    assert r[2].dtype == np.int64
    assert np.array_equal(r[3], r[0].T)
    assert np.array_equal(r[4], r[0])
    assert not np.shares_memory(r[4], r[0])
    assert np.array_equal(r[5], feed[1, ::2])
    assert isinstance(r[6], pg.Tensor)
    assert np.allclose(r[6].dequantize(), feed, atol=0.02)
    assert r[7].dtype == ml_dtypes.bfloat16
    assert r[8].shape == ()
    assert r[8] == 2
    assert isinstance(g.compile([y])(x=feed), tuple)
    assert isinstance(g.compile(y)(x=feed), np.ndarray)


def test_inputs_go_by_name() -> None:
    with pytest.raises(pg.GraphError, match=r"inputs go by name: <Program \(x \(2,\) f32\)"):
        double((2,))(np.ones(2, np.float32))


def test_results_are_fresh() -> None:
    program = double((2,))
    a, b = program(x=[1, 2]), program(x=[3, 4])
    assert np.array_equal(a, [2, 4])
    assert np.array_equal(b, [6, 8])


def test_out() -> None:
    program = double((2, 3))
    feed, out = rand(2, 3), np.empty((2, 3), np.float32)
    assert program(out=out, x=feed) is out
    assert np.array_equal(out, feed * 2)
    assert program(out=feed, x=feed) is feed  # inputs are read before outputs are written
    assert np.array_equal(feed, out)
    read_only = np.empty((2, 3), np.float32)
    read_only.flags.writeable = False
    for bad in (np.empty((3, 2), np.float32), out[::-1], np.empty((6,), np.float32), read_only):
        with pytest.raises(pg.ShapeError, match=r"out\[0\]"):
            program(out=bad, x=feed)
    for bad in (np.empty((2, 3)), [out], "x", np.empty((2, 3), ">f4"), pg.zeros((2, 3))):
        with pytest.raises(pg.DTypeError, match=r"out\[0\]"):
            program(out=bad, x=feed)


def test_out_of_many() -> None:
    g = pg.Graph()
    x = g.input("x", (64,))
    program = g.compile([pg.ops.cast(x, "q8_0"), pg.ops.cast(x, "f8_e4m3"), x])
    feed = rand(64)
    out = [np.zeros(68, np.uint8), np.zeros(64, ml_dtypes.float8_e4m3fn), np.zeros(64, np.float32)]
    assert program(out=out, x=feed) is out
    expected = program(x=feed)
    assert np.array_equal(out[0], expected[0].raw())
    assert np.array_equal(out[1].view(np.uint8), expected[1].view(np.uint8))
    assert np.array_equal(out[2], feed)
    with pytest.raises(pg.ParameterError, match="3 arrays expected, got 2"):
        program(out=out[:2], x=feed)


def test_compile_refuses() -> None:
    g = pg.Graph()
    x = g.input("x", (2,))
    with pytest.raises(pg.ParameterError, match="no outputs"):
        g.compile([])
    with pytest.raises(pg.GraphError, match="not a node of this graph"):
        g.compile([x, pg.Graph().input("y", (2,))])
    with pytest.raises(pg.GraphError):
        g.compile([x, np.zeros(2)])
    with pytest.raises(pg.GraphError, match="output 1 is not a node"):
        pg._core.Program(g._core, [0, 7], 1, None)


# ---- threads ----


@pytest.mark.parametrize("threads", [1, 2, 5, 256])
def test_threads(threads) -> None:
    g = pg.Graph()
    x = g.input("x", (300, 257))
    program = g.compile(pg.ops.soft_max(pg.ops.silu(x) + 1.0), threads=threads)
    assert program.threads == threads
    feed = rand(300, 257)
    expected = g.compile(g.nodes()[-1], threads=1)(x=feed)
    for _ in range(2):
        assert program(x=feed).tobytes() == expected.tobytes()


@pytest.mark.parametrize("n_tokens", [5, 300])
@pytest.mark.parametrize("threads", [1, 3])
def test_work_space_serves_every_step(threads, n_tokens) -> None:
    """The product needs much of it, the steps before and after it little."""
    w, feed = rand(800, 1056), rand(n_tokens, 1056).astype(np.float16)
    g = pg.Graph()
    x = g.input("x", feed.shape, "f16")
    product = pg.ops.mul_mat(w, pg.ops.scale(x, 1.0))
    last = pg.ops.rms_norm(product)
    got = g.compile([product, last], threads)(x=feed)
    wanted = feed.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(got[0], wanted, rtol=0, atol=1e-3)
    scale = 1 / np.sqrt((wanted**2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(got[1], wanted * scale, rtol=0, atol=1e-4)


def test_thread_counts_are_checked() -> None:
    g = pg.Graph()
    x = g.input("x", (1,))
    for threads in (0, -1, 257, 10_000, 2**40):
        with pytest.raises(pg.ParameterError, match=rf"\[1, 256\], got {threads}"):
            g.compile(x, threads=threads)
    assert g.compile(x).threads == pg._core.default_threads() >= 1


def slow_program(n: int = 400) -> pg.Program:
    """A few hundred milliseconds of work."""
    g = pg.Graph()
    x = g.input("x", (256, 256))
    node = x
    for _ in range(n):
        node = pg.ops.rms_norm(pg.ops.mul_mat(x, node))
    return g.compile(node, threads=1)


def insist(program: pg.Program, feed: np.ndarray) -> np.ndarray:
    """Runs it as soon as nobody else does."""
    while True:
        try:
            return program(x=feed)
        except pg.GraphError:
            time.sleep(0)


def test_a_program_runs_once_at_a_time() -> None:
    program, feed = slow_program(), rand(256, 256)
    expected = program(x=feed)
    results: list[np.ndarray] = []
    worker = threading.Thread(target=lambda: results.append(insist(program, feed)))
    worker.start()
    refused = 0
    while worker.is_alive():
        try:
            program(x=feed)
        except pg.GraphError:
            refused += 1
            time.sleep(0.001)
    worker.join()
    assert refused > 0
    assert np.array_equal(results[0], expected)


def test_two_programs_in_two_threads() -> None:
    feeds = [rand(64, 64) for _ in range(4)]
    programs, wrong = [], []
    for i in range(4):
        g = pg.Graph()
        x = g.input("x", (64, 64))
        programs.append(g.compile(pg.ops.soft_max(pg.ops.mul_mat(x, x) * (i + 1.0)), threads=2))
    expected = [p(x=f) for p, f in zip(programs, feeds, strict=True)]

    def work(i: int) -> None:
        for _ in range(100):
            if not np.array_equal(programs[i](x=feeds[i]), expected[i]):
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


# ---- arenas ----


def test_shared_arena_grows() -> None:
    arena = pg.Arena()
    assert arena.nbytes == 0
    programs, sizes = [], (10, 1000, 100, 300_000)
    for n in sizes:
        g = pg.Graph()
        programs.append(g.compile(pg.ops.silu(g.input("x", (n,)) * 3.0), threads=1, arena=arena))
        assert arena.nbytes == max(p.arena_bytes for p in programs)
    for _ in range(2):
        for n, program in zip(sizes, programs, strict=True):
            feed = rand(n)
            g = pg.Graph()
            alone = g.compile(pg.ops.silu(g.input("x", (n,)) * 3.0), threads=1)
            assert np.array_equal(program(x=feed), alone(x=feed))
    del programs, program
    gc.collect()
    assert arena.nbytes > 1_000_000  # the arena outlives its programs


def test_memory_that_an_arena_left_is_not_used() -> None:
    """The first arena is so big that the system takes it back when the second replaces it."""
    script = """
import numpy as np, pyggml as pg
arena, programs = pg.Arena(), []
for n in (10_000_000, 11_000_000):
    g = pg.Graph()
    programs.append(g.compile(g.input("x", (n,))[-2:] * 2.0, threads=1, arena=arena))
    for p in programs:
        (size,) = p.inputs["x"][0]
        assert p(x=np.ones(size, np.float32)).tolist() == [2, 2]
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_an_arena_is_used_by_one_at_a_time() -> None:
    arena = pg.Arena()
    g = pg.Graph()
    x = node = g.input("x", (256, 256))
    for _ in range(400):
        node = pg.ops.rms_norm(pg.ops.mul_mat(x, node))
    slow, quick = g.compile(node, 1, arena=arena), g.compile(x + x, 1, arena=arena)
    feed, results = rand(256, 256), []
    worker = threading.Thread(target=lambda: results.append(insist(slow, feed)))
    worker.start()
    refused = {"run": 0, "compile": 0}
    while worker.is_alive():
        for what, use in (
            ("run", lambda: quick(x=feed)),
            ("compile", lambda: g.compile(x * 2, arena=arena)),
        ):
            try:
                use()
            except pg.GraphError:
                refused[what] += 1
        time.sleep(0.001)
    worker.join()
    assert min(refused.values()) > 0
    assert np.array_equal(results[0], slow(x=feed))
    assert np.array_equal(quick(x=feed), feed + feed)


# ---- lifetime ----


def test_everything_else_may_be_gone() -> None:
    g = pg.Graph()
    array = rand(1000)
    expected = array * 2
    t = pg.tensor(array)
    x = g.input("x", (1000,))
    program = g.compile(x + t + g.const(pg.tensor(array.copy())), arena=(arena := pg.Arena()))
    seen = [weakref.ref(o) for o in (g, t)]
    del g, t, x, array, arena
    gc.collect()
    assert all(ref() is None for ref in seen)
    junk = [np.full(1000, 7, np.float32) for _ in range(50)]
    assert np.array_equal(program(x=np.zeros(1000, np.float32)), expected)
    assert len(junk) == 50


def test_programs_are_freed() -> None:
    gc.collect()
    live = pg.counters()["live"]
    for _ in range(20):
        program = double((10,))
        program(x=np.zeros(10, np.float32))
        with pytest.raises(pg.GraphError):
            program()
    del program
    gc.collect()
    assert pg.counters()["live"] == live


# ---- processes ----


def test_fork() -> None:
    g = pg.Graph()
    x = g.input("x", (200, 200))
    program = g.compile(pg.ops.soft_max(pg.ops.mul_mat(x, x)), threads=3)
    feed = rand(200, 200)
    expected = program(x=feed)
    pid = os.fork()
    if pid == 0:  # only os._exit: the child must not run pytest's ends
        ok = False
        try:
            same = np.array_equal(program(x=feed), expected)
            fresh = np.array_equal(g.compile(g.nodes()[-1], threads=2)(x=feed), expected)
            ok = same and fresh
        finally:
            os._exit(0 if ok else 1)
    assert np.array_equal(program(x=feed), expected)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert np.array_equal(program(x=feed), expected)
