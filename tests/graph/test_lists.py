"""Lists of Python numbers as operands: constants without a dtype of their own."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv]
LISTS: list[Any] = [
    [1.0, 2.5, -3.0],
    (1, 2, 3),
    [[1, 2.5, True], (4, 5, 6)],
    [[1], [2]],
    [np.float32(1.5), np.float64(0.1), np.int64(3)],
]
X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("values", LISTS)
@pytest.mark.parametrize("op", OPERATORS)
def test_operators(op: Any, values: Any) -> None:
    g = pg.Graph()
    x = g.input("x", X.shape)
    both = g.compile([op(x, values), op(values, x)], threads=1)
    array = np.asarray(values, np.float32)
    for got, expected in zip(both(x=X), (op(X, array), op(array, X)), strict=True):
        assert (got.dtype, got.shape) == (np.float32, expected.shape)
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8_e4m3", "f32"])
def test_lists_are_as_weak_as_numbers(dtype: str) -> None:
    x = pg.Graph().input("x", (2,), dtype)
    for op in OPERATORS:
        assert op(x, [1.0, 2.0]).dtype is op(x, 1.0).dtype is x.dtype
        assert op([1, 2], x).dtype is x.dtype
    assert ops.add(x, [1.0, 2.0]).dtype is ops.add(x, 1.0).dtype is pg.f32
    blocks = x.graph.input("q", (32,), "q8_0")
    assert operator.add(blocks, [1.0]).dtype is (blocks + 1.0).dtype is pg.f32


def test_rounded_once() -> None:
    """The list is f32, the sum is rounded to f16: not the list to f16 first."""
    g = pg.Graph()
    x = g.input("x", (1,), "f16")
    got = g.compile(operator.add(x, [2.0**-12]), threads=1)(x=np.float16([2.0**-12]))
    assert got.tolist() == [2.0**-11]
    got = g.compile(x * [0.1], threads=1)(x=np.float16([3]))
    assert got[0] == np.float16(np.float32(3) * np.float32(0.1))
    big = g.compile(x.astype("f32") * [1e39], threads=1)(x=np.float16([1]))
    assert np.isinf(big).all()  # as the number 1e39 is


def test_products() -> None:
    g = pg.Graph()
    x = g.input("x", X.shape)
    program = g.compile([x @ [1.0, 2.0, 3.0], [[1, 2]] @ x, ops.mul_mat([[1, 0, 1]], x)], threads=1)
    right, left, rows = program(x=X)
    assert np.array_equal(right, X @ np.float32([1, 2, 3]))
    assert np.array_equal(left, np.float32([[1, 2]]) @ X)
    assert np.array_equal(rows, X @ np.float32([[1], [0], [1]]))


def test_integers() -> None:
    g = pg.Graph()
    x, i, d = g.input("x", X.shape), g.input("i", (2,), "i32"), g.input("d", (1,), "f64")
    ids = g.input("ids", (1,), "i32")
    assert ops.concat(i, [3, 4]).dtype is pg.i32
    assert ops.concat([3], d).dtype is pg.f64
    assert ops.get_rows([[1, 2], [3, 4]], ids).dtype is pg.f32  # the table, not the row numbers
    cache = pg.zeros((2,), "i64")
    ops.cpy([1 << 60, -5], g.const(cache))
    rows = ops.get_rows(x, [1, 0, 1])
    turned = ops.rope(g.input("q", (2, 1, 4)), [0, 3])
    feeds = {"x": X, "i": [1, 2], "d": [0.5], "q": np.ones((2, 1, 4), np.float32)}
    outs = g.compile([rows, ops.concat(i, [3, 4]), ops.concat(d, [0.1]), turned], threads=1)(
        **feeds
    )
    assert np.array_equal(outs[0], X[[1, 0, 1]])
    assert outs[1].tolist() == [1, 2, 3, 4]
    assert outs[2].tolist() == [0.5, 0.1]  # not rounded to f32
    assert cache.numpy().tolist() == [1 << 60, -5]
    for bad in ([1.5], [1 << 31], [1 << 70]):
        with pytest.raises(pg.DTypeError, match="concat: operand b: "):
            ops.concat(i, bad)
    with pytest.raises(pg.DTypeError, match="ids"):
        ops.get_rows(x, [0.0])


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1, 2], pg.ShapeError, r"b is \(2,\) f32"),
        ([], pg.ShapeError, r"b is \(0,\) f32"),
        ([[1, 2], [3]], pg.DTypeError, "add: operand b: not an array of f32: .*inhomogeneous"),
        ([1, [2, 3]], pg.DTypeError, "inhomogeneous"),
        ([1, None], pg.DTypeError, "operand b: "),
        ([1, 2j], pg.DTypeError, "complex"),
        (["1", "2"], pg.DTypeError, "operand b: "),
        ([1 << 70], pg.DTypeError, "object values are not f32"),
        ([[[[[1.0]]]]], pg.ShapeError, "at most 4 axes"),
        ([pg.Graph().input("y", (3,))], pg.GraphError, "no values yet"),
    ],
)
def test_refused(values: Any, error: type[Exception], message: str) -> None:
    x = pg.Graph().input("x", X.shape)
    with pytest.raises(error, match=message):
        x + values


def test_arrays_stay_what_they_are() -> None:
    g = pg.Graph()
    x = g.input("x", (2,))
    for wide in (np.ones(2), np.float64([1, 2]), pg.tensor([1.0, 2.0]), g.const([1.0, 2.0])):
        for build in (lambda w=wide: x + w, lambda w=wide: w * x, lambda w=wide: x @ w):
            with pytest.raises(pg.DTypeError, match=r"f64.*\.astype\(np\.float32\) rounds it"):
                build()
    with pytest.raises(pg.DTypeError, match=r"b is .* i64"):
        x + np.ones(2, np.int64)
    node = g.input("d", (2,), "f64")
    with pytest.raises(pg.DTypeError, match="cast it first") as caught:
        x + node
    assert "astype" not in str(caught.value)
