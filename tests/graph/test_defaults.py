"""Inputs that a run may leave out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pyggml as pg


def echo(shape, dtype="f32", **kwargs) -> pg.Program:
    g = pg.Graph()
    return g.compile(g.input("x", shape, dtype, **kwargs), threads=1)


def test_a_default_is_used_when_the_input_is_left_out() -> None:
    g = pg.Graph()
    x, s = g.input("x", (3,)), g.input("s", (), default=2)
    program = g.compile(x * s, threads=1)
    assert program.defaults == ("s",)
    assert list(program.inputs) == ["x", "s"]
    feed = np.float32([1, 2, 3])
    for _ in range(2):
        assert program(x=feed).tolist() == [2, 4, 6]
        assert program(x=feed, s=10).tolist() == [10, 20, 30]
    with pytest.raises(pg.GraphError, match=r"missing x \(this program takes x, s\?\)"):
        program()
    with pytest.raises(pg.GraphError, match="unknown t"):
        program(x=feed, t=1)
    assert g.compile(x).defaults == ()


def test_defaults_broadcast_and_convert_as_inputs_do() -> None:
    assert echo((2, 3), default=1.5)().tolist() == [[1.5] * 3] * 2
    assert echo((2, 3), default=[1, 2, 3])().tolist() == [[1, 2, 3]] * 2
    assert echo((2, 3), default=np.float16([[4], [5]]))().tolist() == [[4] * 3, [5] * 3]
    assert echo((2,), "i64", default=np.int8(-3))().tolist() == [-3, -3]
    narrow = echo((2,), "f8_e4m3", default=1e6)()
    assert narrow.dtype == ml_dtypes.float8_e4m3fn
    assert narrow.astype(np.float32).tolist() == [448, 448]
    assert echo((0, 4), default=1)().shape == (0, 4)
    assert echo((), default=False)() == 0


def test_a_default_of_a_block_format_is_a_tensor() -> None:
    t = pg.tensor(np.arange(64, dtype=np.float32).reshape(2, 32), dtype="q8_0")
    result = echo((2, 32), "q8_0", default=t)()
    assert result.raw().tobytes() == t.raw().tobytes()
    with pytest.raises(pg.DTypeError, match="takes a Tensor"):
        echo((2, 32), "q8_0", default=1.0)


def test_a_default_is_copied() -> None:
    array, t = np.ones(3, np.float32), pg.zeros((3,))
    first, second = echo((3,), default=array), echo((3,), default=t)
    array[:] = 7
    t.numpy()[:] = 7
    assert first().tolist() == [1, 1, 1]
    assert second().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("error", "shape", "dtype", "default", "message"),
    [
        (pg.ShapeError, (2, 3), "f32", [1, 2], r"shape \(2,\) does not broadcast to \(2, 3\)"),
        (pg.ShapeError, (3,), "f32", np.ones((1, 3), "f4"), "does not broadcast"),
        (pg.ShapeError, (3,), "f32", pg.zeros((4,)), r"\(3,\) f32 expected"),
        (pg.DTypeError, (3,), "f32", pg.zeros((3,), "f16"), r"\(3,\) f32 expected"),
        (pg.DTypeError, (3,), "i32", 1.5, "float64 values are not i32"),
        (pg.DTypeError, (3,), "i32", 2**40, "passes the range of i32"),
        (pg.DTypeError, (3,), "f32", np.ones(3), "float64 does not convert safely"),
        (pg.DTypeError, (3,), "f32", "one", "str is no array of numbers"),
        (pg.DTypeError, (3,), "f32", object(), "object is no array of numbers"),
        (pg.ShapeError, (-1,), "f32", 0, "negative"),
        (pg.OutOfMemoryError, (1 << 45,), "f32", 0, "140737488355328 bytes are needed"),
    ],
)
def test_a_bad_default_is_refused_when_built(error, shape, dtype, default, message) -> None:
    g = pg.Graph()
    with pytest.raises(error, match=message):
        g.input("x", shape, dtype, default=default)
    assert len(g) == 0


def test_a_refused_input_leaves_no_default() -> None:
    g = pg.Graph()
    g.input("x", (1,))
    with pytest.raises(pg.GraphError):
        g.input("x", (1,), default=1)
    with pytest.raises(pg.GraphError, match="missing x"):
        g.compile(g.nodes()[0])()
