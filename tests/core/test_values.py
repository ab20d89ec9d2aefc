"""Values that look right and are not: endless sequences, huge integers, odd names and shapes, and
arrays that the machine has no room for.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops

HUGE = 10**5000  # of more digits than Python prints


class Count:
    """An integer by __index__ alone."""

    def __index__(self) -> int:
        return 2


class Endless:
    """Says that it has two elements, and has no end."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(0)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def node(shape: tuple[int, ...] = (6, 4)) -> pg.Node:
    return pg.Graph().input("x", shape)


def small(n: int = 1) -> pg.Program:
    x = node()
    return x.graph.compile([x * float(i) for i in range(n)], threads=1)


TAKES_SEQUENCES: dict[str, Callable[[Any], Any]] = {
    "input": lambda s: pg.Graph().input("y", s),
    "zeros": lambda s: pg.zeros(s),
    "from_raw": lambda s: pg.Tensor.from_raw(b"", s, "f32"),
    "reshape": lambda s: node().reshape(s),
    "transpose": lambda s: node().transpose(s),
    "permute": lambda s: ops.permute(node(), s),
    "repeat": lambda s: ops.repeat(node(), s),
    "after": lambda s: ops.pad(node(), s),
    "before": lambda s: ops.pad(node(), [0, 0], s),
    "start": lambda s: ops.acc(pg.zeros((6, 4)), node(), start=s),
    "step": lambda s: ops.set(pg.zeros((6, 4)), node(), step=s),
    "compile": lambda s: pg.Graph().compile(s),
    "out": lambda s: small(2)(x=np.zeros((6, 4), np.float32), out=s),
    "max_version": lambda s: pg.zeros(2).__dlpack__(max_version=s),
    "dl_device": lambda s: pg.zeros(2).__dlpack__(dl_device=s),
}


@pytest.mark.parametrize("name", TAKES_SEQUENCES)
@pytest.mark.parametrize(
    "endless",
    [lambda: itertools.repeat(1), itertools.count, Endless, lambda: range(10**12)],
    ids=["repeat", "count", "lies", "range"],
)
def test_endless_sequences(name: str, endless: Callable[[], Any]) -> None:
    with pytest.raises(pg.PyggmlError):
        TAKES_SEQUENCES[name](endless())


def test_an_endless_sequence_of_nodes() -> None:
    x = node()
    with pytest.raises(pg.ParameterError, match="at most 1048576 outputs"):
        x.graph.compile(itertools.repeat(x))


TAKES_INTEGERS: dict[str, Callable[[Any], Any]] = {
    "input": lambda n: pg.Graph().input("y", n),
    "dtype": lambda n: pg.Graph().input("y", 2, n),
    "zeros": lambda n: pg.zeros(n),
    "from_raw": lambda n: pg.Tensor.from_raw(b"", n, "f32"),
    "pg.dtype": pg.dtype,
    "row_bytes": lambda n: pg.q8_0.row_bytes(n + 1),
    "reshape": lambda n: node().reshape(n, -1),
    "index": lambda n: node()[n],
    "step": lambda n: node()[::-n],
    "sum": lambda n: node().sum(axis=n),
    "argsort": lambda n: node().argsort(n),
    "squeeze": lambda n: node().squeeze(n),
    "squeeze twice": lambda n: node().squeeze((n, n)),
    "swapaxes": lambda n: node().swapaxes(0, n),
    "take": lambda n: node().take(n),
    "concat": lambda n: ops.concat(node(), pg.zeros((6, 4)), axis=n),
    "power": lambda n: node() ** n,
    "add": lambda n: node() + n,
    "params": lambda n: ops.top_k(node(), n),
    "per axis": lambda n: ops.pad(node(), [0, n]),
    "threads": lambda n: node().graph.compile([], threads=n),
    "planned": lambda n: node().graph.compile([], planned=n),
    "keepdims": lambda n: node().sum(keepdims=n),
    "runs": lambda n: small().profile(x=np.zeros((6, 4), np.float32), runs=n),
    "feeds": lambda n: small().profile(n),
    "call_op": lambda n: pg.graph.call_op(n, node()),
}


@pytest.mark.parametrize("name", TAKES_INTEGERS)
@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["huge", "minus"])
def test_integers_that_python_does_not_print(name: str, value: int) -> None:
    with pytest.raises(pg.PyggmlError):
        TAKES_INTEGERS[name](value)


# numpy's own message shows what is no dtype
@pytest.mark.parametrize("name", sorted(TAKES_INTEGERS.keys() - {"add", "dtype", "pg.dtype"}))
def test_values_without_a_repr(name: str) -> None:
    with pytest.raises((pg.PyggmlError, TypeError)):
        TAKES_INTEGERS[name](Unprintable()) if name not in ("row_bytes", "step") else node()[
            Unprintable()
        ]


def test_arrays_that_are_no_sequences() -> None:
    for one in (np.array(3), np.array(None), 5, None, 1.5):
        with pytest.raises(pg.GraphError, match="compile"):
            node().graph.compile(one)
        if one is not None:
            with pytest.raises(pg.ParameterError, match="out: a sequence of 2 arrays"):
                small(2)(x=np.zeros((6, 4), np.float32), out=one)
    for text in ("ab", b"ab"):
        with pytest.raises(pg.GraphError, match="compile"):
            node().graph.compile(text)


def test_messages_are_short() -> None:
    with pytest.raises(pg.ParameterError, match="feeds") as e:
        small().profile(np.zeros((500, 500)))
    assert len(str(e.value)) < 200


def test_integers_by_index() -> None:
    x = node()
    assert x.graph.compile(x, threads=Count()).threads == 2
    assert small().profile(x=np.zeros((6, 4), np.float32), runs=Count(), peak=False).runs == 2
    assert x.reshape(Count(), 12).shape == (2, 12)


def test_a_shape_of_one_axis_may_be_a_0d_array() -> None:
    one = np.array(3)
    assert pg.Graph().input("y", one).shape == (3,)
    assert pg.zeros(one).shape == (3,)
    assert pg.Tensor.from_raw(bytes(12), one, "f32").shape == (3,)
    assert node((3,)).reshape(one).shape == (3,)
    for wrong in (np.array(3.0), np.array(True), np.array("a"), np.array(None)):
        with pytest.raises(pg.ParameterError, match="shape"):
            pg.zeros(wrong)


class Name(enum.StrEnum):
    A = "a"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


@pytest.mark.parametrize("name", [np.str_("a"), Name.A, Text("a")], ids=["numpy", "enum", "own"])
def test_names_of_subclasses_of_str(name: str) -> None:
    g = pg.Graph()
    x = g.input(name, 2)
    assert g.const(pg.zeros(2), name).name == "a"
    assert pg.zeros(2, name=name).name == "a"
    y = x * 2.0
    y.name = name
    assert y.name == x.name == "a"
    assert type(y.name) is str
    assert g.compile(y, threads=1)(a=[1, 2]).tolist() == [2, 4]


@pytest.mark.parametrize("wrong", ["\ud800", "a\udfff", Text("\ud800"), b"a", 1], ids=ascii)
def test_names_that_are_no_text(wrong: Any) -> None:
    g = pg.Graph()
    x = g.input("x", 2)
    for give in (
        lambda: g.input(wrong, 2),
        lambda: g.const(pg.zeros(2), wrong),
        lambda: pg.zeros(2, name=wrong),
        lambda: pg.tensor(np.zeros(2), name=wrong),
        lambda: setattr(x * 2.0, "name", wrong),
    ):
        with pytest.raises(pg.ParameterError, match="the name"):
            give()


def test_a_graph_is_not_initialised_again() -> None:
    x = node()
    with pytest.raises(pg.GraphError, match="initialised"):
        x.graph.__init__()
    assert len(x.graph) == 1


def test_an_input_that_was_undone_leaves_no_default() -> None:
    x = node()
    with contextlib.suppress(KeyError), pg._core.AllOrNone(x.graph):
        x.graph.input("d", 2, default=9)
        raise KeyError
    assert len(x.graph) == 1
    d = x.graph.input("d", 2)
    with pytest.raises(pg.GraphError, match="missing d"):
        x.graph.compile(d * 1.0, threads=1)()


def test_empty_arrays_that_numpy_has_not_got() -> None:
    for shape in ((0, 2**62, 2**62), (2**61, 0), (0, 2**62)):
        with pytest.raises(pg.ShapeError, match="numpy"):
            pg.zeros(shape)
    assert pg.zeros((0, 2**60)).numpy().shape == (0, 2**60)


# ---- room ------------------------------------------------------------------------------------


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 100 MB left."""
    monkeypatch.setattr(pg._core, "memory_room", lambda: 100_000_000)


LARGE = np.broadcast_to(np.float32(1), (30_000_000,))


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(
    "call",
    [
        lambda: pg.zeros(30_000_000),
        lambda: pg.tensor(LARGE),
        lambda: pg.tensor(LARGE, "f16"),
        lambda: pg.tensor(LARGE[:15_000_000], "f64"),
        lambda: pg.tensor(np.broadcast_to(np.int8(1), (30_000_000,)), "i32"),
        lambda: pg.Graph().const(LARGE),
        lambda: pg.Graph().input("x", 30_000_000, default=1.0),
        lambda: pg.Graph().input("x", 30_000_000) + LARGE,
        lambda: pg.zeros(30_000_000, "f8_e4m3").dequantize(),
    ],
    ids=["zeros", "copy", "cast", "f64", "i32", "const", "default", "operand", "dequantize"],
)
def test_copies_that_have_no_room(call: Callable[[], Any]) -> None:
    with pytest.raises(pg.OutOfMemoryError, match=r"\d+ bytes are needed, 100000000 are available"):
        call()


@pytest.mark.usefixtures("little_room")
def test_what_is_not_copied_needs_no_room() -> None:
    for kind in ("f32", "i32", "f64"):
        array = np.zeros(30_000_000, pg.dtype(kind).numpy)
        for t in (pg.tensor(array), pg.tensor(array, kind)):
            assert np.shares_memory(t.numpy(), array)


@pytest.mark.usefixtures("little_room")
def test_results_that_have_no_room_together() -> None:
    g = pg.Graph()
    x = g.input("x", 18_000_000)
    program = g.compile([x * 2.0, x * 3.0], threads=1)
    with pytest.raises(pg.OutOfMemoryError, match="the results: 144000000 bytes are needed"):
        program(x=np.zeros(18_000_000, np.float32))


def test_a_refusal_by_the_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError

    t = pg.zeros(4, "f16")
    monkeypatch.setattr(np, "empty", refuse)
    with pytest.raises(pg.OutOfMemoryError, match="the system refused 16 bytes"):
        t.dequantize()
