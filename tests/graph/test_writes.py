"""Writes into tensors and intermediates: what is seen, what is refused, what is undone."""

from __future__ import annotations

import array as pyarray
import weakref

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops

RNG = np.random.default_rng(11)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_writes_into_tensors_are_roots() -> None:
    g = pg.Graph()
    x = g.input("x", (3,))
    cache, rows = pg.zeros((3,)), pg.zeros((4, 3))
    ops.cpy(x, cache)
    ops.set_rows(g.const(rows)[1:], x.reshape(1, 3), [2])
    assert np.array_equal(g.compile(x)(x=[1, 2, 3]), [1, 2, 3])
    assert np.array_equal(cache.numpy(), [1, 2, 3])
    assert np.array_equal(rows.numpy()[3], [1, 2, 3])
    assert not rows.numpy()[:3].any()


def test_order_is_build_order() -> None:
    g = pg.Graph()
    x = g.input("x", (2,))
    cache = pg.tensor(np.array([10, 20], np.float32))
    c = g.const(cache)
    before = c + 0.0
    w = ops.cpy(x, cache)
    between = c + 0.0
    ops.cpy(x * 100, cache)
    after = w + 0.0
    program = g.compile([after, before, between])
    r = program(x=[1, 2])
    assert [a.tolist() for a in r] == [[100, 200], [10, 20], [1, 2]]
    assert [a.tolist() for a in program(x=[3, 4])] == [[300, 400], [100, 200], [3, 4]]


def test_writes_into_intermediates() -> None:
    g = pg.Graph()
    x, y = g.input("x", (3, 4)), g.input("y", (2, 2))
    base = x * 1.0
    w = ops.cpy(y, base[1:, ::3])
    program = g.compile([w, base])
    expected = (a := rand(3, 4)).copy()
    expected[1:, ::3] = b = rand(2, 2)
    got = program(x=a, y=b)
    assert np.array_equal(got[0], b)
    assert np.array_equal(got[1], expected)
    untouched = g.compile(base)  # nothing asks for the write
    assert untouched.n_nodes == 2
    assert np.array_equal(untouched(x=a), a)


def test_read_only_memory() -> None:
    array = rand(2, 2)
    array.flags.writeable = False
    g = pg.Graph()
    x = g.input("x", (2, 2))
    c = g.const(array, "weights")
    for target in (c, c[0:2], c.T, c.reshape(2, 2)):
        with pytest.raises(pg.ReadOnlyError, match="dst is read-only"):
            ops.cpy(x, target)
        with pytest.raises(pg.ReadOnlyError):
            ops.set_rows(target, x, [0, 1])


def test_failed_set_rows_writes_nothing() -> None:
    g = pg.Graph()
    table = pg.zeros((4, 2))
    ids = g.input("ids", (3,), "i64")
    ops.set_rows(table, g.input("x", (3, 2)), ids)
    got = g.compile(ops.get_rows(g.const(table), ids))
    ones = np.ones((3, 2), np.float32)
    for bad, position in (([0, 1, 4], 2), ([-1, 9, 9], 0), ([0, 2**62, 1], 1)):
        with pytest.raises(
            pg.RowIndexError, match=rf"set_rows: ids\[{position}\] = {bad[position]}"
        ):
            got(x=ones, ids=bad)
        assert not table.numpy().any()
    got(x=ones, ids=[0, 1, 3])
    assert table.numpy().sum() == 6


# ---- memory that would be copied ----


def odd_bytes(shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape)) * 4
    return np.zeros(size + 1, np.uint8)[1:].view(np.float32).reshape(shape)


class Vessel:
    """Not an array, but numpy reads it: its own memory, or a new one each time."""

    def __init__(self, make):
        self.make = make

    def __array__(self, dtype=None, copy=None):
        return self.make()


COPIED = {
    "transposed": lambda: np.zeros((3, 4), np.float32).T,
    "strided": lambda: np.zeros((8, 3), np.float32)[::2],
    "reversed": lambda: np.zeros((4, 3), np.float32)[::-1],
    "big-endian": lambda: np.zeros((4, 3), ">f4"),
    "unaligned": lambda: odd_bytes((4, 3)),
    "broadcast": lambda: np.broadcast_to(np.float32(0), (4, 3)),
    "list": lambda: [[0.0] * 3] * 4,
    "tuple": lambda: ((0, 0, 0),) * 4,
    "generator of arrays": lambda: Vessel(lambda: np.zeros((4, 3), np.float32)),
}


def writes(g: pg.Graph):
    x, ids = g.input("x", (4, 3)), np.arange(4)
    return [
        lambda dst: ops.cpy(x, dst),
        lambda dst: ops.set_rows(dst, x, ids),
        lambda dst: ops.acc(dst, x),
        lambda dst: ops.set(dst, x),
    ]


@pytest.mark.parametrize("kind", COPIED)
def test_a_copy_is_not_written(kind) -> None:
    g = pg.Graph()
    for write in writes(g):
        n = len(g)
        with pytest.raises(pg.ReadOnlyError, match=r"dst is read-only.*must be copied: write into"):
            write(COPIED[kind]())
        assert len(g) == n
    if kind not in ("list", "tuple"):  # numpy reads these as float64
        c, x = g.const(COPIED[kind]()), g.nodes()[0]
        for dst in (c, c[0:4]):
            with pytest.raises(pg.ReadOnlyError, match="must be copied"):
                ops.cpy(x, dst)


def test_numbers_are_not_written() -> None:
    g = pg.Graph()
    x = g.input("x", ())
    for number in (1.5, 2, True, np.float32(3)):
        with pytest.raises(pg.ReadOnlyError, match="must be copied"):
            ops.cpy(x, number)
    assert len(g) == 1


SHARED = {
    "array": lambda: np.zeros((4, 3), np.float32),
    "rows": lambda: np.zeros((9, 3), np.float32)[2:6],
    "new axis": lambda: np.zeros((1, 4, 3), np.float32)[0],
    "matrix": lambda: np.zeros((4, 3), np.float32).view(np.matrix),
    "buffer": lambda: memoryview(pyarray.array("f", [0.0] * 12)).cast("B").cast("f", (4, 3)),
}


@pytest.mark.parametrize("kind", SHARED)
def test_shared_memory_is_written(kind) -> None:
    for i in range(4):
        g = pg.Graph()
        dst = SHARED[kind]()
        written = writes(g)[i](dst)
        x = rand(4, 3)
        assert np.array_equal(g.compile(written)(x=x), x)
        assert np.array_equal(np.asarray(dst), x)


def test_what_shares_its_memory_is_written() -> None:
    memory = np.zeros((4, 3), np.float32)
    g = pg.Graph()
    written = ops.cpy(g.input("x", (4, 3)), Vessel(lambda: memory))
    g.compile(written)(x=np.ones((4, 3)).astype(np.float32))
    assert memory.all()


def test_a_tensor_that_copied_is_written() -> None:
    """The caller has it in hand."""
    g = pg.Graph()
    t = pg.tensor(np.zeros((3, 4), np.float32).T)
    x = rand(4, 3)
    g.compile(ops.cpy(g.input("x", (4, 3)), t))(x=x)
    assert np.array_equal(t.numpy(), x)


def test_masked_arrays_are_refused() -> None:
    g = pg.Graph()
    for write in writes(g):
        with pytest.raises(pg.DTypeError, match="masked"):
            write(np.ma.zeros((4, 3), np.float32))
    assert len(g) == 1


# ---- two constants over the same memory ----


def aliases():
    """Pairs of (what is read, what is written) in common memory, by other arrays and Tensors."""
    memory = np.zeros((8, 3), np.float32)
    yield memory[:4], memory[:4]
    yield memory[:4], memory[3:7]
    yield memory[3:7], memory[:4]
    yield pg.tensor(memory[:4]), pg.tensor(memory[:4])
    yield pg.tensor(memory[:4]), memory[3:7]
    raw = np.zeros(4 * 3 * 4, np.uint8)
    yield pg.Tensor.from_raw(raw, (4, 3), "f32"), pg.Tensor.from_raw(raw, (4, 3), "f32")


@pytest.mark.parametrize("i", range(len(list(aliases()))))
def test_aliases_count_as_the_same_memory(i) -> None:
    read, written = list(aliases())[i]
    g = pg.Graph()
    g.input("x", (1,))
    a, b = g.const(read), g.const(written)
    assert a.id != b.id
    for write in (ops.cpy, lambda x, dst: ops.acc(dst, x), lambda x, dst: ops.set(dst, x)):
        with pytest.raises(pg.GraphError, match="lies in the memory of dst"):
            write(a, b)
        with pytest.raises(pg.GraphError, match="lies in the memory of dst"):
            write(a[:, 1:], b[:, 1:])
    with pytest.raises(pg.GraphError, match="x lies in the memory of dst"):
        ops.set_rows(b, a, [0, 1, 2, 3])
    ops.cpy(ops.cont(a), b)


def test_neighbours_are_not_aliases() -> None:
    memory = np.zeros((8, 3), np.float32)
    g = pg.Graph()
    g.input("x", (1,))
    a, b = g.const(memory[:4]), g.const(memory[4:])
    ops.cpy(a, b)
    ops.cpy(b, a)
    whole = g.const(memory)
    ops.cpy(whole[:2], whole[2:4])
    ops.cpy(whole[:2], b[:2])
    ops.cpy(whole[:0], g.const(memory)[3:3])
    ops.acc(whole, g.const(memory[2:2, 1:]))  # no bytes, at an address inside
    ops.acc(whole[4:4], whole[4:4])


def test_ids_in_the_memory_that_is_written() -> None:
    """A table of i32 rows, itself read as row numbers through another constant."""
    memory = np.arange(4, dtype=np.int32)
    g = pg.Graph()
    table = pg.Tensor.from_raw(memory.view(np.uint8), (4, 1), "f32")
    with pytest.raises(pg.GraphError, match="ids lies in the memory of dst"):
        ops.set_rows(table, g.input("x", (4, 1)), memory)


def test_aliases_see_each_other_in_build_order() -> None:
    memory = np.zeros(6, np.float32)
    g = pg.Graph()
    x = g.input("x", (4,))
    whole, tail = g.const(memory), g.const(memory[2:])
    before = whole + 0.0
    ops.cpy(x, tail)
    between = whole + 0.0
    ops.cpy(x[:2] * 10.0, g.const(memory[:2]))
    ops.acc(g.const(memory[1:5]), x)
    after = tail + 0.0
    program = g.compile([before, between, after], threads=2)
    got = [a.tolist() for a in program(x=[1, 2, 3, 4])]
    assert got == [[0] * 6, [0, 0, 1, 2, 3, 4], [3, 5, 7, 4]]
    assert memory.tolist() == [10, 21, 3, 5, 7, 4]


# ---- outputs and writes ----


def test_an_output_in_written_memory_shows_the_last_write() -> None:
    """The tensor and its views are read at the end; `cont` keeps what was there."""
    g = pg.Graph()
    x = g.input("x", (2, 2))
    cache = pg.tensor(np.zeros((2, 2), np.float32))
    c = g.const(cache)
    view, kept = c[0], ops.cont(c[0])
    first = ops.cpy(x, c)
    ops.cpy(x * 2.0, c)
    step = g.compile([c, view, kept, first], threads=1)
    for n in (1, 2):
        got = [a.tolist() for a in step(x=[[1, n], [3, 4]])]
        assert got[0] == got[3] == [[2, 2 * n], [6, 8]]
        assert got[1] == [2, 2 * n]
        assert got[2] == ([0, 0] if n == 1 else [2, 2])


def test_out_may_not_overlap() -> None:
    g = pg.Graph()
    x = g.input("x", (3,))
    program = g.compile([x * 1.0, x * 2.0, x[:2] * 3.0], threads=1)
    room = np.zeros(8, np.float32)
    a, b, c = room[:3], room[3:6], room[6:]
    for out in ([a, a, c], [a, room[2:5], c], [a, b, room[5:7]], [b, a, room[0:2]]):
        room[:] = 7
        with pytest.raises(pg.ParameterError, match=r"out\[\d\] and out\[\d\] overlap in memory"):
            program(x=[1, 2, 3], out=out)
        assert (room == 7).all()
    for out in ([a, b, c], [b, a, c]):
        assert program(x=[1, 2, 3], out=out) is out
        assert out[1].tolist() == [2, 4, 6]
    empty = g.compile([x[:0] * 1.0, x[:0] * 2.0, x * 2.0], threads=1)
    empty(x=[1, 2, 3], out=[a[1:1], a[1:1], a])


def test_out_may_not_lie_in_a_constant_that_is_returned() -> None:
    memory = np.arange(4, dtype=np.float32)
    g = pg.Graph()
    c, x = g.const(memory), g.input("x", (2,))
    program = g.compile([x * 1.0, c[2:]], threads=1)
    for out in ([memory[2:], np.zeros(2, np.float32)], [np.zeros(2, np.float32), memory[2:]]):
        with pytest.raises(pg.ParameterError, match="a constant that is returned"):
            program(x=[8, 9], out=out)
    assert memory.tolist() == [0, 1, 2, 3]
    alone = g.compile(x + c[:2], threads=1)  # c is read before any result is written
    alone(x=[8, 9], out=memory[:2])
    assert memory.tolist() == [8, 10, 2, 3]


# ---- a node that fails leaves the graph as it was ----

FAILS = {
    "shape": lambda x: x + np.zeros((5,), np.float32),
    "dtype": lambda x: x + np.zeros(3),
    "second operand": lambda x: ops.set_rows(np.zeros((2, 3), np.float32), x, [0.5]),
    "parameter": lambda x: ops.soft_max(x, np.zeros((2, 3), np.float32), scale="much"),
    "dtype name": lambda x: ops.add(x, np.zeros(3, np.float32), dtype="f99"),
    "read-only": lambda x: ops.cpy(x, [[0.0] * 3] * 2),
    "matmul": lambda x: x @ np.zeros((2, 2), np.float32),
    "matmul, late": lambda x: x @ np.zeros((3, 2), np.int32),
    "vector": lambda x: x @ np.zeros(4, np.float32),
    "sum": lambda x: x.sum(axis=0, dtype="f99"),
    "cumsum": lambda x: x.cumsum(dtype="f99"),
    "reshape": lambda x: ops.reshape(x, (4, -1, -1)),
    "index": lambda x: x[None, None, None],
    "two graphs": lambda x: ops.add(x, pg.Graph().input("y", (3,))),
}


@pytest.mark.parametrize("kind", FAILS)
def test_a_failed_node_leaves_the_graph_as_it_was(kind) -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3))
    kept = g.const(pg.zeros((3,)))
    before, picture = len(g), g.to_dot()
    with pytest.raises(pg.PyggmlError):
        FAILS[kind](x)
    assert len(g) == before
    assert g.to_dot() == picture
    assert g.compile(x + kept, threads=1)(x=np.ones((2, 3), np.float32)).sum() == 6


def test_a_failed_node_lets_its_constant_go() -> None:
    g = pg.Graph()
    x = g.input("x", (2,))
    t = pg.zeros((5,))
    with pytest.raises(pg.ShapeError):
        x + t
    assert g.const(t).id == 1  # not one that the graph has forgotten
    u = pg.zeros((5,))
    gone = weakref.ref(u)
    with pytest.raises(pg.ShapeError):
        x + u
    del u
    assert gone() is None


def test_truncate_by_hand() -> None:
    g = pg.Graph()
    g.input("x", (2,))
    for n in (-1, 2, 99):
        with pytest.raises(pg.GraphError, match="truncate"):
            g._core.truncate(n)
    g._core.truncate(0)
    assert len(g) == 0
