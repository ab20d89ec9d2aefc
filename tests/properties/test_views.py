"""Views, broadcasting and writes of any shape do what numpy does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties import draw as d

import pyggml as pg

Region = tuple[tuple[int, ...], list[int], list[int], tuple[int, ...]]


@given(st.data(), d.shapes)
def test_chains_of_views(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """Up to four of: an index, a permutation, a reshape, a new axis."""
    feed = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    node: Any = pg.Graph().input("x", shape)
    expected: Any = feed
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["index", "permute", "flat", "axis"]))
        if kind == "index":
            index = data.draw(d.indices(expected.shape))
            node, expected = node[index], expected[index]
        elif kind == "permute":
            axes = data.draw(st.permutations(range(expected.ndim)))
            node, expected = pg.ops.permute(node, axes), expected.transpose(axes)
        elif kind == "axis" and expected.ndim < 4:
            node, expected = node.reshape(1, *node.shape), expected.reshape(1, *expected.shape)
        else:
            node, expected = node.reshape(expected.size), expected.reshape(expected.size)
        assert node.shape == expected.shape
    assert np.array_equal(d.run(pg.ops.cont(node), x=feed), expected)


@given(st.data(), d.shapes_with_axes, d.seeds)
def test_binary_ops_broadcast(data: st.DataObject, shape: tuple[int, ...], seed: int) -> None:
    """Either operand may lack axes or have 1 where the other has more; any bits."""
    shapes = []
    for _ in range(2):
        kept = [1 if data.draw(st.booleans()) else n for n in shape]
        shapes.append(tuple(kept[data.draw(st.integers(0, len(kept))) :]))
    a, b = (d.wild(s, seed + i) for i, s in enumerate(shapes))
    g = pg.Graph()
    x, y = g.input("x", a.shape), g.input("y", b.shape)
    with np.errstate(all="ignore"):
        for op, oracle in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
            got = d.run(getattr(pg.ops, op)(x, y), x=a, y=b)
            assert d.same(got, np.asarray(oracle(a, b), np.float32)), op


@given(d.regions(), d.seeds)
def test_acc_and_set(region: Region, seed: int) -> None:
    shape, start, step, size = region
    where = tuple(
        slice(a, a + s * n, s) for a, s, n in zip(start, step, size, strict=True)
    )  # fmt: skip
    base, x = d.values(shape, seed), d.values(size, seed + 1)
    for op in ("set", "acc"):
        dst = pg.tensor(base.copy())
        node = getattr(pg.ops, op)(pg.Graph().const(dst), x, start=start, step=step)
        expected = base.copy()
        expected[where] = x if op == "set" else expected[where] + x
        assert d.same(d.run(node), expected)
        assert d.same(dst.numpy(), expected)


@given(d.regions(), d.seeds, st.sampled_from(d.FLOATS), st.sampled_from(d.FLOATS))
def test_cpy_into_a_view(region: Region, seed: int, source: str, target: str) -> None:
    shape, start, step, size = region
    where = tuple(slice(a, a + s * n, s) for a, s, n in zip(start, step, size, strict=True))
    base = d.values(shape, seed).astype(pg.dtype(target).numpy)
    x = d.values(size, seed + 1).astype(pg.dtype(source).numpy)
    dst, g = pg.tensor(base.copy()), pg.Graph()
    d.run(pg.ops.cpy(x, g.const(dst)[where]))
    expected = base.copy()
    expected[where] = x.astype(np.float32).astype(base.dtype)
    assert dst.raw().tobytes() == expected.tobytes()


@given(st.data(), d.seeds, st.sampled_from([np.int32, np.int64]))
def test_rows(data: st.DataObject, seed: int, kind: type) -> None:
    rows, width = data.draw(st.integers(1, 7)), data.draw(st.integers(0, 9))
    ids = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=9, unique=True)), kind)
    base, x = d.values((rows, width), seed), d.values((len(ids), width), seed + 1)
    dst = pg.tensor(base.copy())
    written = pg.ops.set_rows(pg.Graph().const(dst), x, ids)
    expected = base.copy()
    expected[ids] = x
    assert d.same(d.run(written), expected)
    assert d.same(d.run(pg.ops.get_rows(pg.Graph().const(dst), ids)), x)
