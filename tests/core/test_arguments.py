"""Every argument of every public op in turn is given what it cannot be: refused by name, or taken.

A walk over the signatures, so that a new op or parameter is met without a line here.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ops.check import rand
from ops.op_cases import CASES

import pyggml as pg
from pyggml import ops

X = rand(5, 3, 64)
# Ops whose case is a lambda, and those without one: (operands, the other arguments).
CALLS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "view": ([X], {"index": slice(1, None)}),
    "reshape": ([X], {"shape": (15, 64)}),
    "permute": ([X], {"axes": (1, 0, 2)}),
    "cast": ([X], {"dtype": "f16"}),
    "cpy": ([X, np.zeros_like(X)], {}),
    "dup": ([X], {}),
    "matmul": ([rand(5, 3, 64), rand(64, 7)], {}),
    "scale": ([X], {"s": 2.0}),
    "set_rows": ([np.zeros((9, 64), np.float32), rand(2, 64), np.array([8, 0])], {}),
    "acc": ([np.zeros((6, 3, 64), np.float32), X], {"start": (1, 0, 0), "step": (1, 1, 1)}),
    "set": ([np.zeros((6, 3, 64), np.float32), X], {"start": (1, 0, 0), "step": (1, 1, 1)}),
    "repeat": ([X], {"shape": (10, 3, 64)}),
}
NAMES_OF_PARTS = {"matmul": ("matmul", "mul_mat", "transpose", "reshape"), "dup": ("dup", "cont")}
# What a message says instead of a parameter's name: of a dtype, what it cannot hold.
NOT_BY_NAME = {"dtype": "", "x": "no operand belongs", "a": "no operand belongs"}
BAD = [
    None,
    True,
    0,
    -1,
    7,
    2**31,
    2**70,
    10**400,
    0.5,
    math.nan,
    math.inf,
    1e300,
    1j,
    "",
    "a",
    b"bytes",
    [],
    [1.5],
    [None],
    ["a"],
    [[1], [2, 3]],
    (0, 1),
    (-1,) * 9,
    {},
    {"a": 1},
    object(),
    int,
    len,
    slice(None),
    ...,
    np.float32(0.5),
    np.int64(-3),
    np.array([], np.float32),
    np.array([0.5]),
    np.array(["a"]),
    np.array([None]),
    np.ma.masked_array([1.0], [True]),
    np.zeros((1, 1, 1, 1, 1), np.float32),
    np.zeros((2, 2), np.complex64),
    pg.f32,
    "q4_k",
    pg.zeros((3,)),
    pg.zeros((2, 32), "q8_0"),
    pg.zeros((0, 0)),
    pg.zeros((2,), "i64"),
]


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of 2^31 are a value like others here, and are not to be filled."""
    monkeypatch.setattr(pg._core, "memory_room", lambda: 1 << 30)


def valid(name: str) -> dict[str, Any]:
    """The arguments of a call that works, by name; operands are arrays."""
    function = getattr(ops, name)
    if name in CALLS:
        arrays, params = CALLS[name]
    elif name in CASES and CASES[name].fn is function:
        arrays, params = CASES[name].arrays, CASES[name].more.get("params", {})
    else:
        arrays, params = [X], {}
    arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
    names = list(inspect.signature(function).parameters)
    return dict(zip(names, arrays, strict=False)) | params


def call(g: pg.Graph, name: str, arguments: dict[str, Any], but: str = "") -> pg.Node:
    """The op on the arguments; all arrays but one are made nodes first."""
    nodes = {
        k: g.const(v) if isinstance(v, np.ndarray) and k != but else v for k, v in arguments.items()
    }
    g.before = len(g)
    return getattr(ops, name)(**nodes)


class Graph(pg.Graph):
    """A graph that remembers its length from before the op."""

    before = 0


def refused(words: tuple[str, ...], what: Any, build: Callable[[], Any], also: str = "") -> Any:
    """None when the call is refused by one of pyggml's errors that holds one of the words, and
    `also` besides it.
    """
    try:
        return build()
    except pg.PyggmlError as e:
        message = str(e)
    word = next((word for word in words if word in message), None)
    assert word is not None, f"{what!r}: {message}"
    rest = message.replace(word, "", 1)
    assert also in rest or NOT_BY_NAME.get(also, also) in rest, f"{also}: {what!r}: {message}"
    return None


# ---- ops ----


WALK = [(name, p) for name in ops.__all__ for p in inspect.signature(getattr(ops, name)).parameters]


@pytest.mark.parametrize("name", ops.__all__)
def test_the_call_is_valid(name: str) -> None:
    g = Graph()
    g.compile(call(g, name, valid(name)), threads=1)()


@pytest.mark.parametrize(("name", "parameter"), WALK)
def test_an_argument_is_refused_by_name_or_taken(name: str, parameter: str) -> None:
    words = (name, *NAMES_OF_PARTS.get(name, ()))
    for bad in BAD:
        g, given = Graph(), valid(name) | {parameter: bad}
        node = refused(words, bad, lambda: call(g, name, given, parameter), parameter)  # noqa: B023
        if node is None:
            assert len(g) == g.before, f"{bad!r} leaves nodes"
        else:
            with contextlib.suppress(pg.RowIndexError):
                g.compile(node, threads=1)()


@pytest.mark.parametrize("name", ops.__all__)
def test_a_missing_argument(name: str) -> None:
    for p in inspect.signature(getattr(ops, name)).parameters.values():
        given = valid(name)
        if given.pop(p.name, None) is None:
            continue
        if p.default is p.empty:
            with pytest.raises(TypeError, match=p.name):
                call(Graph(), name, given)
        else:
            with contextlib.suppress(pg.PyggmlError):  # a block format whose rows do not fit
                call(Graph(), name, given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        call(Graph(), name, valid(name) | {"nonsense": 1})


# ---- methods of Node ----

# Valid arguments, and what a message may begin with besides the method's name.
METHODS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "argmax": ({"axis": 1, "keepdims": True}, ()),
    "argsort": ({"axis": 0}, ()),
    "astype": ({"dtype": "f16"}, ("cast",)),
    "clip": ({"min": -1.0, "max": 1.0}, ("clamp",)),
    "copy": ({}, ()),
    "cumsum": ({"axis": 0, "dtype": "f16"}, ()),
    "dot": ({"b": np.zeros((64, 2), np.float32)}, ("matmul", "mul_mat")),
    "flatten": ({}, ()),
    "mean": ({"axis": 0, "dtype": "f16", "keepdims": True}, ()),
    "ravel": ({}, ()),
    "reshape": ({"shape": (64, 15)}, ()),
    "squeeze": ({"axis": ()}, ()),
    "sum": ({"axis": 0, "dtype": "f16", "keepdims": True}, ("sum_rows",)),
    "swapaxes": ({"axis1": 0, "axis2": 1}, ()),
    "take": ({"indices": [1, 2], "axis": 1}, ()),
    "transpose": ({"axes": (1, 0)}, ("permute",)),
}
STARRED = ("reshape", "transpose")


def invoke(node: pg.Node, name: str, given: dict[str, Any]) -> Any:
    """The method; what it takes starred goes in as one."""
    if name in STARRED:
        return getattr(node, name)(*given.values())
    return getattr(node, name)(**given)


def test_every_method_is_here() -> None:
    public = {n for n, f in inspect.getmembers(pg.Node, inspect.isfunction) if n[0] != "_"}
    assert public == set(METHODS)
    for name, (given, _) in METHODS.items():
        signature = inspect.signature(getattr(pg.Node, name))
        assert set(signature.parameters) - {"self"} == set(given)


@pytest.mark.parametrize("name", METHODS)
def test_method_arguments(name: str) -> None:
    given, others = METHODS[name]
    shape = (15, 64)
    assert invoke(pg.Graph().input("x", shape), name, given).graph
    for parameter in given:
        for bad in BAD:
            x = pg.Graph().input("x", shape)
            wrong = given | {parameter: bad}
            node = refused((name, *others), bad, lambda: invoke(x, name, wrong))  # noqa: B023
            assert node is not None or len(x.graph) == 1


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_operators_and_indices(bad: Any) -> None:
    for operate in (
        lambda x: x + bad,
        lambda x: bad - x,
        lambda x: x * bad,
        lambda x: bad / x,
        lambda x: x @ bad,
        lambda x: x**bad,
        lambda x: x[bad],
        lambda x: x[:, bad],
    ):
        x = pg.Graph().input("x", (15, 64))
        try:
            operate(x)
        except (pg.PyggmlError, TypeError):  # TypeError: of Python or numpy, of an unknown operand
            assert len(x.graph) == 1


# ---- the rest ----


def small() -> pg.Program:
    g = pg.Graph()
    return g.compile(g.input("x", (2,)) * 2.0, threads=1)


NODE = pg.Graph().input("x", (2,))
OTHERS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = {
    "input": (
        lambda **given: pg.Graph().input(**given),
        {"name": "y", "shape": (2, 3), "dtype": "f32", "default": 0.0},
        ("input", "dtype", "shape"),
    ),
    "const": (
        lambda **given: pg.Graph().const(**given),
        {"value": np.zeros(2, np.float32), "name": "w"},
        ("const", "tensor"),
    ),
    "tensor": (
        pg.tensor,
        {"array": np.zeros(2, np.float32), "name": "w", "dtype": "f16"},
        ("tensor", "dtype", "shape"),
    ),
    "zeros": (
        pg.zeros,
        {"shape": (2, 3), "dtype": "f32", "name": "w"},
        ("zeros", "shape", "dtype", "name"),
    ),
    "dtype": (pg.dtype, {"value": "f32"}, ("dtype",)),
    "from_raw": (
        pg.Tensor.from_raw,
        {"data": bytes(8), "shape": (2,), "dtype": "f32", "name": "w"},
        ("from_raw", "shape", "dtype", "name", "takes 8 bytes", "bytes, got"),
    ),
    "compile": (
        lambda **given: NODE.graph.compile(**given),
        {"outputs": NODE, "threads": 1, "arena": None, "planned": True, "guarded": False},
        ("compile",),
    ),
    "call": (
        lambda **given: small()(**given),
        {"x": np.zeros(2, np.float32), "out": None},
        ("input", "out"),
    ),
    "profile": (
        lambda **given: small().profile(given["feeds"], runs=given["runs"], peak=False),
        {"feeds": {"x": np.zeros(2, np.float32)}, "runs": 1},
        ("profile", "input", "missing"),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_arguments(name: str) -> None:
    function, given, words = OTHERS[name]
    function(**given)
    for parameter in given:
        for bad in BAD:
            wrong = given | {parameter: bad}
            refused(words, (parameter, bad), lambda: function(**wrong))  # noqa: B023
