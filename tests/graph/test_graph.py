"""Building graphs: operands, operators, names, and errors raised at the line that builds."""

from __future__ import annotations

import pickle
import re
import threading
import traceback

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg
from pyggml.graph import call_op

RNG = np.random.default_rng(7)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def value(node: pg.Node, **feeds: object) -> np.ndarray:
    return node.graph.compile(node, threads=1)(**feeds)


# ---- errors ----


@pytest.mark.parametrize(
    ("error", "builtin", "build", "message"),
    [
        (
            pg.ShapeError,
            ValueError,
            lambda x, w: pg.ops.mul_mat(w, x),
            "mul_mat: .*: w 'weight' is (5, 4) f8_e4m3, x 'x' is (2, 3) f32",
        ),
        (
            pg.ShapeError,
            ValueError,
            lambda x, w: x + w,
            "add: shapes do not broadcast: a 'x' is (2, 3) f32, b 'weight' is (5, 4) f8_e4m3",
        ),
        (
            pg.DTypeError,
            TypeError,
            lambda x, w: pg.ops.silu(x.graph.input("i", (3,), "i32")),
            "silu: x must have a float dtype: x 'i' is (3,) i32",
        ),
        (
            pg.ParameterError,
            ValueError,
            lambda x, w: pg.ops.rms_norm(x, eps=-1.0),
            "rms_norm: eps must be in [0, 3.40282e+38], got -1",
        ),
        (
            pg.ParameterError,
            ValueError,
            lambda x, w: pg.ops.scale(x, float("nan")),
            "scale: s must be in .*, got .?nan",
        ),
        (
            pg.ReadOnlyError,
            ValueError,
            lambda x, w: pg.ops.cpy(w, w),
            "cpy: dst is read-only: x 'weight' is (5, 4) f8_e4m3, dst 'weight' is (5, 4) f8_e4m3",
        ),
        (
            pg.ShapeError,
            ValueError,
            lambda x, w: pg.ops.get_rows(x[0], [0]),
            "get_rows: .*: x is (3,) f32, ids is (1,) i64",
        ),
        (
            pg.GraphError,
            ValueError,
            lambda x, w: x + pg.Graph().input("y", (3,)),
            "add: the operands belong to two graphs",
        ),
        (pg.GraphError, ValueError, lambda x, w: pg.ops.add(1.0, [2.0]), "add: no operand belongs"),
        (pg.GraphError, ValueError, lambda x, w: x.graph.input("x", (1,)), "an input 'x' already"),
        (pg.GraphError, ValueError, lambda x, w: x.graph.compile(None), "None is not a node"),
        (
            pg.GraphError,
            ValueError,
            lambda x, w: x.graph.compile(pg.zeros(2)),
            "<Tensor .*> is not a node",
        ),
        (pg.ParameterError, ValueError, lambda x, w: x.graph.input("", (1,)), "a name is needed"),
        (pg.ParameterError, ValueError, lambda x, w: x.graph.input("out", ()), "'out' names"),
        (pg.ParameterError, ValueError, lambda x, w: x.graph.input("n" * 64, ()), "passes 63"),
        (pg.ShapeError, ValueError, lambda x, w: x.graph.input("y", (1,) * 5), "at most 4 axes"),
        (pg.ShapeError, ValueError, lambda x, w: x.graph.input("y", (-1,)), "negative"),
        (
            pg.ShapeError,
            ValueError,
            lambda x, w: x.graph.input("y", (2, 33), "q8_0"),
            "the last axis has 33 elements; q8_0 needs a multiple of its block of 32",
        ),
        (pg.DTypeError, TypeError, lambda x, w: x.graph.input("y", (1,), "u8"), "f32, f16, bf16"),
        (
            pg.DTypeError,
            TypeError,
            lambda x, w: x + np.ones(3),
            "add: b is only stored as f64; cast it first: a 'x' is (2, 3) f32, b is (3,) f64",
        ),
        (pg.ParameterError, ValueError, lambda x, w: call_op("relux", x), "there is no op 'relux'"),
        (
            pg.ParameterError,
            ValueError,
            lambda x, w: call_op("silu", x, slope=1),
            "silu: unknown parameter slope",
        ),
        (
            pg.ParameterError,
            ValueError,
            lambda x, w: call_op("scale", x),
            "scale: the parameter s is missing",
        ),
        (
            pg.ParameterError,
            ValueError,
            lambda x, w: call_op("add", x),
            "add: takes 2 operands, got 1",
        ),
        (
            pg.ParameterError,
            ValueError,
            lambda x, w: call_op("silu", x, x),
            "silu: takes 1 operands, got 2",
        ),
    ],
)
def test_errors_name_what_is_wrong(error, builtin, build, message) -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3))
    raw = bytes(20)
    w = g.const(pg.Tensor.from_raw(raw, (5, 4), "f8_e4m3", "weight"))
    pattern = re.escape(message).replace(r"\.\*", ".*").replace(r"\.\?", ".?")
    with pytest.raises(error, match=pattern) as caught:
        build(x, w)
    assert isinstance(caught.value, builtin)
    assert isinstance(caught.value, pg.PyggmlError)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert any("lambda" in f.name and f.filename == __file__ for f in frames)


def test_error_classes_are_builtins() -> None:
    for error, builtin in (
        (pg.ShapeError, ValueError),
        (pg.DTypeError, TypeError),
        (pg.ParameterError, ValueError),
        (pg.GraphError, ValueError),
        (pg.ReadOnlyError, ValueError),
        (pg.RowIndexError, IndexError),
        (pg.OutOfMemoryError, MemoryError),
        (pg.InternalError, RuntimeError),
    ):
        assert issubclass(error, builtin)
        assert issubclass(error, pg.PyggmlError)
    assert issubclass(pg.CancelledError, pg.PyggmlError)


def test_a_failed_build_adds_nothing() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3))
    before = len(g)
    for build in (lambda: x.reshape(7), lambda: pg.ops.rms_norm(x, -1), lambda: g.input("x", (1,))):
        with pytest.raises(pg.PyggmlError):
            build()
    assert len(g) == before
    feed = rand(2, 3)
    assert np.array_equal(value(x + x, x=feed), feed + feed)


# ---- operands ----


def test_operands_of_every_kind() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3))
    array, feed = rand(2, 3), rand(2, 3)
    t = pg.tensor(array, name="t")
    for other in (g.const(t), t, array):
        assert np.array_equal(value(x - other, x=feed), feed - array)
        assert np.array_equal(value(pg.ops.sub(other, x), x=feed), array - feed)
    for scalar in (2, 2.5, True, np.float32(2.5), np.int64(3), np.float64(0.1)):
        s = np.float32(scalar)
        assert np.array_equal(value(x + scalar, x=feed), feed + s)
        assert np.array_equal(value(scalar - x, x=feed), s - feed)
        assert np.array_equal(value(x * scalar, x=feed), feed * s)
        assert np.array_equal(value(scalar / x, x=feed), s / feed)
        assert np.array_equal(value(x / scalar, x=feed), feed / s)


@pytest.mark.parametrize("scalar", [np.inf, -np.inf, np.nan, 1e39])
def test_scalars_that_are_not_finite(scalar) -> None:
    feed = np.float32([-1.5, -0.0, 0, 2, np.inf])
    g = pg.Graph()
    x = g.input("x", (5,))
    with np.errstate(all="ignore"):
        s = np.float32(scalar)
        pairs = [
            (x + scalar, feed + s),
            (scalar - x, s - feed),
            (x - scalar, feed - s),
            (x * scalar, feed * s),
            (x / scalar, feed / s),
        ]
    for node, expected in pairs:
        assert node.dtype is pg.f32
        assert np.array_equal(value(node, x=feed), expected, equal_nan=True)


def test_signs_of_zero() -> None:
    g = pg.Graph()
    x = g.input("x", (3,))
    feed = np.array([0.0, -0.0, 2.0], np.float32)
    for node, expected in ((-x, -feed), (x * 2, feed * 2), (x * -1, -feed), (x - 0.0, feed - 0.0)):
        assert value(node, x=feed).tobytes() == expected.tobytes()


def test_same_tensor_is_one_const() -> None:
    g = pg.Graph()
    t = pg.zeros((3,), name="cache")
    a, b = g.const(t), g.const(t)
    assert a.id == b.id
    assert len(g) == 1
    assert a.name == "cache"
    assert a.op == "const"


def test_const_sees_later_writes() -> None:
    g = pg.Graph()
    x = g.input("x", (3,))
    array = np.zeros(3, np.float32)
    program = g.compile(x + pg.tensor(array))
    array[:] = 5
    assert np.array_equal(program(x=np.ones(3, np.float32)), [6, 6, 6])
    array[1] = -1
    assert np.array_equal(program(x=np.ones(3, np.float32)), [6, 0, 6])


# ---- operators against numpy ----

BROADCASTS = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((4, 1), (1, 5)),
    ((), (2,)),
    ((2, 3, 4, 5), (4, 1)),
]


@pytest.mark.parametrize(("a", "b"), BROADCASTS + [(b, a) for a, b in BROADCASTS])
def test_arithmetic(a, b) -> None:
    g = pg.Graph()
    x, y = g.input("x", a), g.input("y", b)
    left, right = rand(*a), rand(*b)
    for node, expected in (
        (x + y, left + right),
        (x - y, left - right),
        (x * y, left * right),
        (x / y, left / right),
    ):
        assert node.shape == expected.shape
        assert np.array_equal(value(node, x=left, y=right), expected)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (1, 4, 5)),
    ],
)
def test_matmul(a, b) -> None:
    g = pg.Graph()
    left, right = rand(*a), rand(*b)
    expected = left.astype(np.float64) @ right
    for node in (g.input("x", a) @ g.input("y", b), g.nodes()[0] @ right, left @ g.nodes()[1]):
        assert node.shape == expected.shape
        program = g.compile(node)
        feeds = {n: v for n, v in (("x", left), ("y", right)) if n in program.inputs}
        assert np.allclose(program(**feeds), expected, rtol=1e-5, atol=1e-5)


def random_index(shape: tuple[int, ...]):
    """One that numpy takes, of the kinds that make views."""
    parts: list[object] = []
    for n in shape[: int(RNG.integers(len(shape) + 1))]:
        which = RNG.integers(3)
        if which == 0 and n:
            parts.append(int(RNG.integers(-n, n)))
        elif which == 1:
            bound = RNG.integers(-n - 2, n + 3, 2).tolist()
            parts.append(slice(bound[0], bound[1], int(RNG.integers(1, 4))))
        else:
            parts.append(slice(None))
    if len(shape) - sum(isinstance(p, int) for p in parts) < 4 and RNG.random() < 0.4:
        parts.insert(int(RNG.integers(len(parts) + 1)), None)
    if RNG.random() < 0.3:
        parts.append(...)
    return tuple(parts)


def test_indexing_is_numpys() -> None:
    for _ in range(300):
        shape = tuple(RNG.integers(1, 6, int(RNG.integers(1, 5))).tolist())
        index = random_index(shape)
        g = pg.Graph()
        feed = rand(*shape)
        node = g.input("x", shape)[index]
        assert node.shape == feed[index].shape, (shape, index)
        assert np.array_equal(value(node, x=feed), feed[index]), (shape, index)


def test_views_of_views() -> None:
    for _ in range(100):
        g = pg.Graph()
        node, expected = g.input("x", (3, 4, 5)), (feed := rand(3, 4, 5))
        for _ in range(int(RNG.integers(1, 6))):
            which = RNG.integers(3)
            if which == 0:
                node, expected = node.T, expected.T
            elif which == 1 and 0 not in node.shape:
                index = random_index(node.shape)
                node, expected = node[index], expected[index]
            else:
                node, expected = node.reshape(-1), expected.reshape(-1)
        assert np.array_equal(value(node, x=feed), expected)


# ---- dtypes ----


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8_e4m3"])
def test_weak_scalars(dtype) -> None:
    g = pg.Graph()
    x = g.input("x", (5,), dtype)
    for node in (x + 1, 1 + x, x - 1, 1 - x, x * 2.0, 2.0 * x, x / 2, 2 / x, -x):
        assert node.dtype is pg.dtype(dtype)
    feed = np.array([1, -2, 0.5, 4, 8], x.dtype.numpy)
    wide = feed.astype(np.float32)
    assert np.array_equal(value(2 / x, x=feed).astype(np.float32), 2 / wide)
    assert np.array_equal(value(1 - x, x=feed).astype(np.float32), 1 - wide)


def test_blocks_give_f32() -> None:
    g = pg.Graph()
    x = g.input("x", (32,), "q8_0")
    assert (x * 2).dtype is pg.f32
    assert (2 / x).dtype is pg.f32
    assert (x + g.input("y", (32,), "f16")).dtype is pg.f32


def test_mixed_dtypes_give_f32() -> None:
    g = pg.Graph()
    x, y = g.input("x", (3,), "f16"), g.input("y", (3,), "bf16")
    assert (x + y).dtype is pg.f32
    assert pg.ops.add(x, y, dtype="f16").dtype is pg.f16
    assert pg.ops.add(x, y, dtype=ml_dtypes.bfloat16).dtype is pg.bf16


# ---- faces ----


def test_node_attributes() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3, 4), "f16")
    y = pg.ops.soft_max(x.astype("f32"))
    assert (x.shape, x.ndim, x.dtype, x.op, x.id, len(x)) == ((2, 3, 4), 3, pg.f16, "input", 0, 2)
    assert x.graph is g
    assert y.op == "soft_max"
    assert [n.op for n in y.src if n is not None] == ["cast"]
    assert [n.id for n in g.nodes()] == list(range(len(g)))
    assert [n.shape for n in x] == [(3, 4), (3, 4)]
    assert x.T.shape == (4, 3, 2)
    y.name = "probs"
    assert y.name == "probs"
    assert repr(y) == f"<Node {y.id} 'probs': soft_max -> (2, 3, 4) f32>"
    assert repr(x) == "<Node 0 'x': input -> (2, 3, 4) f16>"
    assert repr(g) == f"<Graph of {len(g)} nodes>"
    skipped = pg.ops.rope(g.input("h", (1, 1, 4)), [0], np.ones(2, np.float32))
    assert [n.op for n in skipped.src if n is not None] == ["input", "const", "const"]


def test_names() -> None:
    g = pg.Graph()
    y = pg.ops.silu(g.input("x", (2,)))
    for name in (lambda s: setattr(y, "name", s), lambda s: g.const(np.ones(2, np.float32), s)):
        with pytest.raises(pg.ParameterError, match="passes 63 bytes"):
            name("\u00e9" * 32)
    y.name = "\u00e9" * 31
    assert y.name == "\u00e9" * 31
    long = pg.tensor(np.ones(2, np.float32), name="\u00e9" * 40)  # as a file may name it
    assert g.const(long).name == "\u00e9" * 31  # cut in front of a character
    y.name = ""
    assert y.name == ""
    with pytest.raises(pg.GraphError, match="the name of an input is fixed"):
        g.nodes()[0].name = "z"
    with pytest.raises(pg.ParameterError, match="NUL"):
        y.name = "a\0b"
    with pytest.raises(pg.ParameterError, match="NUL"):
        g.input("a\0b", (1,))
    with pytest.raises(pg.ParameterError, match="NUL"):
        g.const(np.ones(2, np.float32), "a\0b")
    y.name = "%s%n"
    with pytest.raises(pg.ShapeError, match="x '%s%n' is"):
        pg.ops.transpose(y)


def test_a_shape_of_one_axis_may_be_an_int() -> None:
    x = pg.Graph().input("x", 4)
    assert x.shape == (4,)
    assert pg.zeros(np.int64(3), "f16").shape == (3,)
    assert pg.Tensor.from_raw(bytes(8), 4, "f16").shape == (4,)
    for bad in (None, 1.5, "4"):
        with pytest.raises(pg.ParameterError, match="input 'y': shape"):
            x.graph.input("y", bad)


def test_nodes_have_no_values() -> None:
    x = pg.Graph().input("x", (2,))
    for use in (bool, np.asarray):
        with pytest.raises(pg.GraphError):
            use(x)
    with pytest.raises(TypeError):
        len(pg.Graph().input("s", ()))
    with pytest.raises(TypeError):
        pickle.dumps(x)


def test_building_from_many_threads() -> None:
    g = pg.Graph()
    x = g.input("x", (4,))
    sums: list[pg.Node] = []

    def build(k: int) -> None:
        node = x
        for _ in range(200):
            node = node + float(k)
        sums.append(node)

    workers = [threading.Thread(target=build, args=(k,)) for k in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(g) == 1 + 6 * 200
    results = g.compile(sums)(x=np.zeros(4, np.float32))
    assert sorted(float(r[0]) for r in results) == [200.0 * k for k in range(6)]


def test_a_const_needs_its_memory() -> None:
    g = pg.Graph()
    with pytest.raises(pg.ShapeError, match=r"const 'c': 8 bytes given, 12 needed for \(3,\)"):
        g._core.const(bytes(8), pg.f32.id, (3,), "c", False)
    with pytest.raises(pg.ParameterError, match="no dtype number 99"):
        g._core.const(bytes(8), 99, (2,), "c", False)
    with pytest.raises(BufferError):
        g._core.const(bytes(8), pg.f32.id, (2,), "c", True)
