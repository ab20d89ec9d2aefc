"""Methods of Node that numpy has too: the same shapes and values."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg

SHAPES = [(), (1,), (3,), (1, 4, 1), (2, 3, 4), (0, 3), (1, 1, 1, 1), (2, 1, 0, 1)]


def build(shape: tuple[int, ...]) -> tuple[np.ndarray, pg.Node]:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    return array, pg.Graph().input("x", shape)


def value(node: pg.Node, array: np.ndarray) -> np.ndarray:
    return node.graph.compile(node, threads=1)(x=array)


@pytest.mark.parametrize("shape", SHAPES)
def test_sizes(shape: tuple[int, ...]) -> None:
    array, x = build(shape)
    assert (x.size, x.nbytes, x.ndim, x.shape) == (array.size, array.nbytes, array.ndim, shape)
    assert pg.Graph().input("q", (3, 64), "q8_0").nbytes == 3 * 2 * 34


@pytest.mark.parametrize("shape", SHAPES)
def test_flat(shape: tuple[int, ...]) -> None:
    array, x = build(shape)
    for node, expected in (
        (x.ravel(), array.ravel()),
        (x.flatten(), array.flatten()),
        (x.T.ravel(), array.T.ravel()),
        (x.T.flatten(), array.T.flatten()),
    ):
        assert node.shape == expected.shape
        assert np.array_equal(value(node, array), expected)


def test_flatten_copies_and_ravel_does_not() -> None:
    for method, expected in (("ravel", 9), ("flatten", 1)):
        g = pg.Graph()
        t = pg.tensor(np.ones((2, 2), np.float32))
        pg.ops.cpy(np.full(4, 9, np.float32), getattr(g.const(t), method)())
        g.compile(g.nodes()[-1], threads=1)()
        assert t.numpy().tolist() == [[expected] * 2] * 2


@pytest.mark.parametrize("shape", SHAPES)
def test_squeeze(shape: tuple[int, ...]) -> None:
    array, x = build(shape)
    assert x.squeeze().shape == array.squeeze().shape
    assert np.array_equal(value(x.squeeze(), array), array.squeeze())
    for axis in range(-5, 5) if shape else ():  # numpy lets axis 0 of no axes pass
        try:
            expected = array.squeeze(axis)
        except ValueError:
            with pytest.raises(pg.ShapeError, match="squeeze"):
                x.squeeze(axis)
        else:
            assert np.array_equal(value(x.squeeze(axis), array), expected)
    ones = tuple(i for i, n in enumerate(shape) if n == 1)
    assert x.squeeze(ones).shape == array.squeeze(ones).shape
    assert x.squeeze(list(ones)).shape == array.squeeze().shape
    assert x.squeeze(()).shape == shape


@pytest.mark.parametrize("shape", SHAPES)
def test_swapaxes(shape: tuple[int, ...]) -> None:
    array, x = build(shape)
    n = len(shape)
    for a in range(-n, n):
        for b in range(-n, n):
            expected = array.swapaxes(a, b)
            assert x.swapaxes(a, b).shape == expected.shape
            assert np.array_equal(value(x.swapaxes(a, b), array), expected)
    with pytest.raises(pg.ShapeError, match="swapaxes: axis"):
        x.swapaxes(0, n)
    with pytest.raises(pg.ShapeError, match="swapaxes: axis"):
        x.swapaxes(-n - 1, 0)


def test_axes_are_integers() -> None:
    _, x = build((1, 4))
    for axis in (1.0, "0", None, [0, 1.5]):
        with pytest.raises(pg.ParameterError, match=r"swapaxes: .* is not an integer"):
            x.swapaxes(axis, 0)
    with pytest.raises(pg.ShapeError):
        x.squeeze(2**70)


def test_views_are_views() -> None:
    g = pg.Graph()
    t = pg.zeros((1, 2, 3))
    pg.ops.cpy(np.ones((3, 2), np.float32), g.const(t).squeeze(0).swapaxes(0, 1))
    g.compile(g.nodes()[-1], threads=1)()
    assert t.numpy().all()
