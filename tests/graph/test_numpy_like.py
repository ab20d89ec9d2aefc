"""What people from numpy try: its methods, index arrays, functions, comparisons, copies."""

from __future__ import annotations

import copy
import pickle
from array import array as pyarray
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg
from pyggml import ops

RNG = np.random.default_rng(21)
ARRAY = RNG.standard_normal((3, 4, 5)).astype(np.float32)


def value(node: pg.Node) -> np.ndarray:
    return node.graph.compile(node, threads=1)(x=ARRAY)


def build(dtype: str = "f32") -> pg.Node:
    x = pg.Graph().input("x", ARRAY.shape)
    return x if dtype == "f32" else x.astype(dtype)


def agrees(build_or_compute, *, exact: bool = True) -> None:
    """The same expression on a node and on numpy's array."""
    got, expected = value(build_or_compute(build())), build_or_compute(ARRAY)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if exact:
        assert np.array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


# ---- methods ----


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.clip(-0.5, 0.25),
        lambda x: x.clip(None, 0.25),
        lambda x: x.clip(min=-0.5),
        lambda x: x.clip(-0.5, max=np.float32(1)),
        lambda x: x.copy(),
        lambda x: x.T.copy(),
        lambda x: +x,
        lambda x: -x,
        lambda x: x**1,
        lambda x: x**2,
        lambda x: x**-1,
        lambda x: x ** np.int8(2),
    ],
)
def test_exact(f) -> None:
    agrees(f)


@pytest.mark.parametrize("power", [3, 4, 3.0, -2, True])
def test_powers(power) -> None:
    agrees(lambda x: x**power, exact=False)


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_roots(power) -> None:
    agrees(lambda x: abs(x) ** power, exact=False)


def every_value(dtype: str) -> np.ndarray:
    """All values of a 16-bit dtype; of bf16 those whose powers F32 has room for."""
    x = np.arange(2**16, dtype=np.uint16).view(pg.dtype(dtype).numpy)
    size = np.abs(x.astype(np.float32))
    room = (size > 2.0**-30) & (size < 2.0**30) if dtype == "bf16" else np.isfinite(size)
    return x[room]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("power", [3, 4, -2, -0.5])
def test_powers_of_narrow_dtypes_have_their_middle_in_f32(dtype, power) -> None:
    """The square of 300 is beyond F16 and its power -2 is not.

    The middle, the square or the root, is in F32, and so is the power before it is rounded to the
    dtype of x: half a step of that dtype away, and half a step of F32 for each (a square is exact).
    """
    x = every_value(dtype)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        # as it is defined: -inf of -0, of which numpy's power is inf
        exact = 1 / np.sqrt(wide) if power == -0.5 else wide**power
        expected = exact.astype(x.dtype).astype(np.float64)
    g = pg.Graph()
    node = g.const(x) ** power
    assert node.dtype is pg.dtype(dtype)
    got = g.compile(node, threads=1)().astype(np.float64)
    fits = np.isfinite(expected)
    assert fits.mean() > 0.4
    np.testing.assert_array_equal(got[~fits], expected[~fits])
    info = ml_dtypes.finfo(x.dtype)
    half_step = np.maximum(
        np.abs(exact[fits]) * 2.0 ** -(info.nmant + 1), float(info.smallest_subnormal) / 2
    )
    f32_steps = 2 if power == -0.5 else 1
    bound = half_step + f32_steps * 2.0**-24 * np.abs(exact[fits])
    assert (np.abs(got[fits] - exact[fits]) <= bound).all()


@pytest.mark.parametrize("power", [5, 0, 1.5, -3, "2", None, 2j, float("nan"), 10**400])
def test_other_powers(power) -> None:
    x = build()
    n = len(x.graph)
    with pytest.raises(pg.ParameterError, match="the powers of a node are 1, 2, 3, 4"):
        x**power
    assert len(x.graph) == n


def test_dot() -> None:
    m, v = ARRAY[0], ARRAY[0, 0]
    for a, b in ((m, m.T), (m, v), (v, m.T), (v, v)):
        g = pg.Graph()
        node = g.const(a).dot(b.copy())
        np.testing.assert_allclose(g.compile(node, threads=1)(), a.dot(b), rtol=1e-5, atol=1e-6)
    with pytest.raises(pg.ShapeError, match="dot: more than two axes"):
        build().dot(np.zeros((5, 2), np.float32))
    with pytest.raises(pg.ShapeError, match="dot: more than two axes"):
        build()[0].dot(ARRAY)


AXES = [(0, 1), (2, 0), (1, 2), (-1, -3), [0, 2], (0, 1, 2), (2, 1, 0), (1,), ()]


@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
def test_several_axes(name, keepdims, axis) -> None:
    got = value(getattr(build(), name)(axis, keepdims=keepdims))
    wide = getattr(ARRAY.astype(np.float64), name)(tuple(axis), keepdims=keepdims)
    assert got.shape == wide.shape
    np.testing.assert_allclose(got, wide, rtol=1e-6, atol=1e-6)


def test_axes_refused() -> None:
    for axis in ((0, 0), (0, -3), (1, 3)):
        with pytest.raises(pg.ShapeError, match="sum: "):
            build().sum(axis)
    four = pg.Graph().input("x", (2, 3, 2, 3))
    assert four.sum(()).shape == (2, 3, 2, 3)
    assert four.mean((0, 3), keepdims=True).shape == (1, 3, 2, 1)


def test_no_axis_needs_no_view() -> None:
    x = build()
    n = len(x.graph)
    x.sum(-1, keepdims=True)
    assert len(x.graph) == n + 1
    x.cumsum(-1)
    assert len(x.graph) == n + 2


# ---- index arrays ----

INDICES = [
    np.s_[[0, 2]],
    np.s_[[0, -1, 2, 0]],
    np.s_[np.array([1, 2])],
    np.s_[np.array([[0, 1], [2, -3]])],
    np.s_[np.array([2], np.uint8)],
    np.s_[:, [3, 0]],
    np.s_[..., [4, -5]],
    np.s_[..., [1, 1], :],
    np.s_[1:, [0, 3], ::2],
    np.s_[None, [0, 2]],
    np.s_[[0, 2], None],
    np.s_[np.zeros(0, int)],
    np.s_[:, np.zeros((0, 2), np.int32)],
    np.s_[[0, 1],],
]


@pytest.mark.parametrize("i", range(len(INDICES)))
def test_index_arrays(i) -> None:
    agrees(lambda x: x[INDICES[i]])


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -3])
@pytest.mark.parametrize("indices", [[0, 2, -1], 1, np.array([[1, 0]])])
def test_take(axis, indices) -> None:
    agrees(lambda x: x.take(indices, axis))


def test_take_keeps_dtypes() -> None:
    for dtype in ("f16", "bf16", "f8_e4m3"):
        node = build(dtype).take([2, 0], 1)
        assert node.dtype is pg.dtype(dtype)
    i = pg.Graph().const(np.arange(6, dtype=np.int32).reshape(2, 3))
    assert i.graph.compile(i[[1, 0]], threads=1)().tolist() == [[3, 4, 5], [0, 1, 2]]
    q = pg.Graph().const(pg.tensor(np.ones((4, 32), np.float32), dtype="q8_0"))
    assert q[[3, 0]].dtype is pg.f32


def test_index_by_a_node_or_a_tensor() -> None:
    g = pg.Graph()
    x, i = g.input("x", ARRAY.shape), g.input("i", (2, 2), "i32")
    at = np.int32([[0, 2], [1, 1]])
    program = g.compile([x[i], x[:, pg.tensor(at)]], threads=1)
    rows, columns = program(x=ARRAY, i=at)
    assert np.array_equal(rows, ARRAY[at])
    assert np.array_equal(columns, ARRAY[:, at])
    with pytest.raises(pg.RowIndexError, match=r"get_rows: ids\[1\] = -1"):
        program(x=ARRAY, i=[[0, -1], [0, 0]])


@pytest.mark.parametrize(
    ("error", "index"),
    [
        (pg.RowIndexError, [3]),
        (pg.RowIndexError, [0, -4]),
        (pg.RowIndexError, np.array([2**63], np.uint64)),
        (pg.DTypeError, [0.5]),
        (pg.DTypeError, [True, False, True]),
        (pg.DTypeError, ARRAY > 0),
        (pg.DTypeError, ["a"]),
        (pg.ParameterError, ([0], [1])),
        (pg.ParameterError, (0, [1])),
        (pg.ShapeError, (slice(None), slice(None), slice(None), [0])),
        (pg.ShapeError, np.zeros((2, 1, 1), int)),
    ],
)
def test_index_arrays_refused(error, index) -> None:
    x = build()
    n = len(x.graph)
    with pytest.raises(error):
        x[index]
    assert len(x.graph) == n


# ---- numpy's functions ----

FUNCTIONS = [
    lambda x: np.add(x, 1),
    lambda x: np.subtract(x, ARRAY),
    lambda x: np.multiply(ARRAY, x),
    lambda x: np.divide(x, np.float32(3)),
    lambda x: np.float32(2) * x,
    lambda x: ARRAY - x,
    lambda x: ARRAY[0] * x,
    lambda x: np.negative(x),
    lambda x: np.abs(x),
    lambda x: np.square(x),
    lambda x: np.reshape(x, (12, 5)),
    lambda x: np.transpose(x),
    lambda x: np.transpose(x, (1, 0, 2)),
    lambda x: np.swapaxes(x, 0, 1),
    lambda x: np.squeeze(x[None]),
    lambda x: np.ravel(x),
    lambda x: np.clip(x, -1, 1),
    lambda x: np.take(x, [1, 2], axis=1),
    lambda x: np.copy(x),
    lambda x: np.concatenate([x, ARRAY]),
    lambda x: np.concatenate([ARRAY, x, x], axis=-1),
]
ROUNDED = [
    lambda x: np.exp(x),
    lambda x: np.log(np.abs(x)),
    lambda x: np.sin(x),
    lambda x: np.cos(x),
    lambda x: np.tanh(x),
    lambda x: np.sqrt(np.abs(x)),
    lambda x: np.sum(x, axis=1, keepdims=True),
    lambda x: np.sum(x),
    lambda x: np.mean(x, (0, 1)),
    lambda x: np.cumsum(x, axis=0),
    lambda x: np.matmul(x, ARRAY[0].T.copy()),
    lambda x: np.dot(x[0], ARRAY[0].T.copy()),
    lambda x: ARRAY[:, :, :4].copy() @ x,
]


@pytest.mark.parametrize("i", range(len(FUNCTIONS)))
def test_functions(i) -> None:
    agrees(FUNCTIONS[i])


@pytest.mark.parametrize("i", range(len(ROUNDED)))
def test_rounded_functions(i) -> None:
    agrees(ROUNDED[i], exact=False)


def test_functions_of_positions() -> None:
    x = build()
    assert np.array_equal(value(np.argmax(x, axis=1)), ARRAY.argmax(1))
    assert np.array_equal(value(np.argsort(x)), ARRAY.argsort())
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((3, 4, 5), 3, 60)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: np.floor(x), "numpy's floor has no op on nodes; see pyggml.ops"),
        (lambda x: np.add.reduce(x), "numpy's add.reduce has no op"),
        (lambda x: np.greater(x, 0), "numpy's greater has no op"),
        (lambda x: np.prod(x), "numpy's prod has no op"),
        (lambda x: np.where(True, x, 0), "numpy's where has no op"),
        (lambda x: np.add(x, 1, out=np.zeros(3)), "numpy's add on a node takes no out"),
        (lambda x: np.exp(x, dtype="f4"), "numpy's exp on a node takes no dtype"),
    ],
)
def test_functions_refused(f, message) -> None:
    with pytest.raises(TypeError, match=message):
        f(build())


def test_an_array_is_not_added_to_in_place() -> None:
    a = ARRAY.copy()
    with pytest.raises(TypeError, match="takes no out"):
        a += build()
    assert np.array_equal(a, ARRAY)
    with pytest.raises(pg.GraphError, match="the first argument"):
        np.dot(ARRAY[0], build()[0])


# ---- operands that are none ----


class Other:
    """Its operators answer for those of a node."""

    def __radd__(self, other: object) -> str:
        return "radd"

    def __rmatmul__(self, other: object) -> str:
        return "rmatmul"


@pytest.mark.parametrize("other", ["a", b"a", None, 1j, {}, {1}, object(), Decimal(1), Fraction(1)])
def test_not_an_operand(other) -> None:
    x = build()
    for f in (
        lambda: x + other,
        lambda: other - x,
        lambda: x * other,
        lambda: x / other,
        lambda: x @ other,
        lambda: other @ x,
    ):
        with pytest.raises(TypeError, match=r"unsupported operand|multiply sequence"):
            f()
    assert len(x.graph) == 1


def test_others_may_answer() -> None:
    assert build() + Other() == "radd"
    assert build() @ Other() == "rmatmul"


def test_buffers_are_operands() -> None:
    x = pg.Graph().input("x", (2,))
    memory = pyarray("f", [1, 2])
    program = x.graph.compile([x + memory, x * memoryview(memory)], threads=1)
    memory[1] = 5  # captured by reference
    assert [a.tolist() for a in program(x=[1, 1])] == [[2, 6], [1, 5]]


def test_a_missing_operand() -> None:
    x = build()
    for f in (lambda: ops.add(x, None), lambda: ops.mul_mat(None, x)):
        with pytest.raises(pg.GraphError, match=r"the operand \w+ is missing \(None was given\)"):
            f()
    for number in (10**400, -(10**400)):
        with pytest.raises(pg.ParameterError, match="add: an integer that no float holds"):
            x + number


# ---- equality, truth, copies ----


def test_nodes_are_equal_when_they_are_the_same() -> None:
    x = build()
    y = x + 1
    again = x.graph.nodes()[0]
    assert x == again
    assert (x != again) is False
    assert hash(x) == hash(again)
    assert x != y
    assert x != build()
    assert x in [y, x]
    assert len({x, again, y}) == 2
    assert x != "x"
    assert x is not None
    for other in (0, 1.5, np.float32(1), True, ARRAY, pg.tensor(ARRAY)):
        with pytest.raises(pg.GraphError, match="no values to compare"):
            assert x == other
    with pytest.raises(TypeError, match="numpy's equal has no op"):
        np.equal(ARRAY, x)


def test_nodes_have_no_values_to_look_at() -> None:
    x = build()
    for f in (bool, float, int, complex, np.asarray, np.float32, lambda x: 0.5 in x):
        with pytest.raises(pg.GraphError):
            f(x)
    with pytest.raises(pg.GraphError, match=r"not assigned to: ops\.cpy"):
        x[0] = 1
    with pytest.raises(pg.GraphError, match="not assigned to"):
        x[0] += 1


def test_graphs_are_not_copied() -> None:
    x = build()
    program = x.graph.compile(x, threads=1)
    assert copy.copy(x) is x
    for thing in (x, x.graph, program):
        for f in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="not pickled"):
                f(thing)
    with pytest.raises(TypeError, match="not pickled or copied"):
        copy.copy(x.graph)


def test_tensors_compare_as_objects() -> None:
    t, u = pg.tensor(ARRAY), pg.tensor(ARRAY)
    assert t == t
    assert t != u
    assert len({t, u}) == 2
    assert t != "t"
    assert (t == ARRAY).all()  # numpy's answer
    with pytest.raises(pg.ParameterError, match="not compared with numbers"):
        assert t == 0
    with pytest.raises(pg.ParameterError, match="no truth value"):
        bool(t)


@pytest.mark.parametrize("f", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_tensors_are_copied(f) -> None:
    for dtype in ("f32", "bf16", "q8_0"):
        t = pg.tensor(RNG.standard_normal((3, 32)).astype(np.float32), dtype, "w")
        u = f(t)
        assert (u.name, u.dtype, u.shape, u.writable) == ("w", t.dtype, t.shape, True)
        assert np.array_equal(u.raw(), t.raw())
        assert not np.shares_memory(u.raw(), t.raw())
        g = pg.Graph()
        assert np.array_equal(g.compile(ops.cast(g.const(u), "f32"))(), t.dequantize())


def test_numpy_functions_with_arguments_that_nodes_have_not() -> None:
    x = pg.Graph().input("x", (3, 4))
    for call, message in (
        (lambda: np.sum(x, out=np.zeros(3)), "numpy's sum on a node: .*'out'"),
        (lambda: np.concatenate([x, x], dtype="f4"), "numpy's concatenate on a node: .*'dtype'"),
        (lambda: np.take(x, [0], mode="clip"), "numpy's take on a node: .*'mode'"),
        (lambda: np.maximum(x, 0), "numpy's maximum has no op on nodes; see x.clip"),
        (lambda: np.outer(x, x), "numpy's outer has no op on nodes; see ops.out_prod"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    for axis in ("q", 0.5, None, True):
        with pytest.raises(pg.ParameterError, match="concatenate: axis"):
            np.concatenate([x], axis=axis)
    with pytest.raises(pg.ShapeError, match="concatenate: axis 2"):
        np.concatenate([x], axis=2)
    assert np.concatenate((x,)) == x
    assert len(x.graph) == 1


def test_the_ops_are_what_a_user_sees_of_their_module() -> None:
    assert dir(ops) == sorted(ops.__all__)


def test_hints_of_writes_and_errors_of_operands_name_no_other_function() -> None:
    x = pg.Graph().input("x", (2, 4))
    for dst in (np.zeros((8, 4)), pg.zeros((8, 4), "f64")):
        with pytest.raises(pg.DTypeError, match=r"set_rows: dst .*\(pg.zeros\(shape"):
            ops.set_rows(dst, x, [0, 1])
    with pytest.raises(pg.DTypeError, match="get_rows: operand ids: list is no array"):
        ops.get_rows(x, [[0], [1, 2]])
    with pytest.raises(pg.DTypeError, match=r"input 'x': float64 .*astype\(float32\) rounds it"):
        x.graph.compile(x * 2.0, threads=1)(x=np.zeros((2, 4)))
