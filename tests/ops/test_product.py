"""ops.matmul and the @ operator: numpy's product out of mul_mat and views."""

import numpy as np
import pytest
from ops.check import SCALARS, assert_close, decode, encode, rand, run_threads

import pyggml as pg

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((2, 6, 3, 4), (6, 4, 5)),
    ((2, 1, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
    ((70, 96), (96, 130)),
]


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_product(a, b, dtype):
    left, right = encode(rand(*a, seed=1), dtype), encode(rand(*b, seed=2), dtype)
    expected = decode(left) @ decode(right)
    g = pg.Graph()
    for node in (g.const(left) @ g.const(right), g.const(left) @ right, left @ g.const(right)):
        assert node.dtype is pg.f32
        assert_close(run_threads(node), np.asarray(expected), 1e-6)


def test_numpy_arrays_on_either_side():
    x, y = rand(3, 4).astype(np.float32), rand(4, 5).astype(np.float32)
    g = pg.Graph()
    node = g.const(x)
    np.testing.assert_allclose(run_threads(node @ y).numpy(), x @ y, rtol=1e-5)
    np.testing.assert_allclose(run_threads(x @ g.const(y)).numpy(), x @ y, rtol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (3, 4)), ((4,), (5,)), ((), (4,)), ((4,), ()), ((4, 3, 4), (2, 4, 5))],
)
def test_refused(a, b):
    g = pg.Graph()
    with pytest.raises(pg.ShapeError, match="matmul"):
        g.input("a", a) @ g.input("b", b)


def test_operands_without_a_graph():
    with pytest.raises(pg.GraphError, match="no operand belongs to a graph"):
        pg.ops.matmul(np.eye(2), np.eye(2))
