"""Methods of Node that have numpy's names: axes, keepdims, defaults."""

import numpy as np
import pytest
from ops.check import encode, rand, run

import pyggml as pg

REDUCTIONS = ("sum", "mean", "argmax")
SCANS = ("argsort", "cumsum")
SHAPES = ((3, 4, 5), (2, 3, 4, 5), (7,), (1, 1))


def value(node):
    return run(node).numpy()


def same(got, expected):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_as_numpy(name, shape):
    x = np.float64(np.float32(rand(*shape)))
    node = pg.Graph().const(np.float32(x))
    assert value(getattr(node, name)()).shape == ()
    for axis in (None, *range(-len(shape), len(shape))):
        for keepdims in (False, True):
            expected = getattr(x, name)(axis=axis, keepdims=keepdims)
            same(value(getattr(node, name)(axis, keepdims=keepdims)), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SCANS)
def test_scans_as_numpy(name, shape):
    x = np.float64(np.float32(rand(*shape)))
    node = pg.Graph().const(np.float32(x))
    same(value(getattr(node, name)()), getattr(x, name)())
    for axis in (None, *range(-len(shape), len(shape))):
        same(value(getattr(node, name)(axis)), getattr(x, name)(axis=axis))


def test_transpose_as_numpy():
    x = np.float32(rand(2, 3, 4))
    node = pg.Graph().const(np.float32(x))
    for axes in ((), (None,), (2, 0, 1), ((1, 2, 0),), ([0, -1, 1],)):
        same(
            value(node.transpose(*axes)),
            x.transpose(*(tuple(a) if isinstance(a, list) else a for a in axes)),
        )
    with pytest.raises(pg.ShapeError):
        node.transpose(0, 1)
    with pytest.raises(pg.ShapeError):
        node.transpose(0, 1, 1)


def test_of_a_number_and_of_nothing():
    g = pg.Graph()
    number = g.const(np.float32(3))
    for name in REDUCTIONS:
        assert value(getattr(number, name)()) == (0 if name == "argmax" else 3)
    assert value(number.cumsum(None)).tolist() == [3]
    none = g.const(np.zeros((3, 0), np.float32))
    assert value(none.sum()) == 0
    assert value(none.sum(0)).shape == (0,)
    assert value(none.sum(1)).tolist() == [0, 0, 0]
    assert value(none.cumsum(0)).shape == (3, 0)
    with pytest.raises(pg.ShapeError):
        none.argmax(1)


def test_views_and_narrow_dtypes():
    x = np.float32(rand(4, 6))
    half = pg.Graph().const(encode(x, "f16"))
    assert half.sum().dtype is pg.f32
    assert half.mean(0, "f16").dtype is pg.f16
    same(value(half.T[1:, ::2].sum(0)), np.float16(x).astype("f4").T[1:, ::2].sum(0))
    with pytest.raises(pg.ShapeError):
        pg.Graph().input("q", (4, 32), "q8_0").sum(0)
    blocks = pg.Graph().const(encode(rand(4, 32), "q8_0"))
    same(value(blocks.sum(-1)), value(blocks.astype("f32").sum(-1)))


@pytest.mark.parametrize("name", [*REDUCTIONS, *SCANS])
def test_refused(name):
    node = pg.Graph().input("x", (2, 3))
    for axis in (2, -3, 2**70):
        with pytest.raises(pg.ShapeError, match=f"{name}: axis"):
            getattr(node, name)(axis)
    for axis in (0.5, "0", True, *([(0, 1)] if name not in ("sum", "mean") else [(0, 0.5)])):
        with pytest.raises(pg.ParameterError, match=f"{name}: .* is not an integer"):
            getattr(node, name)(axis)
