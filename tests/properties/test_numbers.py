"""Casts, sorting, sums and soft_max: what holds for any values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import draw as d

import pyggml as pg
from oracles import sort as oracle_sort

wild_lists = st.lists(d.wild_floats, max_size=70).map(lambda v: np.array(v, np.float32))


def cast(x: d.Array, dtype: str) -> d.Array:
    g = pg.Graph()
    node = g.const(pg.tensor(x))
    return d.run(pg.ops.cont(pg.ops.cast(node, dtype)))


@pytest.mark.parametrize("target", d.FLOATS)
@pytest.mark.parametrize("source", d.FLOATS)
@given(x=wild_lists)
def test_casts(source: str, target: str, x: d.Array) -> None:
    """Equal to ml_dtypes (saturated to E4M3's largest), monotone; a second cast changes nothing."""
    with np.errstate(all="ignore"):
        a = x.astype(pg.dtype(source).numpy)
        got = cast(a, target)
        wide = a.astype(np.float32)
        finite = np.clip(wide, -448, 448) if target == "f8_e4m3" else wide
        expected = finite.astype(pg.dtype(target).numpy)
    assert d.same(got.astype(np.float32), expected.astype(np.float32))
    assert d.same(cast(got, target).astype(np.float32), got.astype(np.float32))
    order = np.argsort(wide[~np.isnan(wide)], kind="stable")
    rising = got.astype(np.float32)[~np.isnan(wide)][order]
    assert bool(np.all(rising[1:] >= rising[:-1]))
    assert np.array_equal(np.signbit(got.astype(np.float32)), np.signbit(wide))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=400))
def test_e4m3_of_any_bits(bits: list[int]) -> None:
    """The nearest of the 253 numbers, ties to the even code, the sign kept, NaN as 0x7F."""
    x = np.array(bits, np.uint32).view(np.float32)
    codes = cast(x, "f8_e4m3").view(np.uint8)
    numbers = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    for value, code in zip(x, codes, strict=True):
        assert (code >> 7) == np.signbit(value)
        if np.isnan(value):
            assert code & 0x7F == 0x7F
            continue
        distance = np.abs(numbers - min(abs(float(value)), 448.0))
        near = np.flatnonzero(distance == distance.min())
        assert code & 0x7F == (near[0] if len(near) == 1 else near[near % 2 == 0][0])


@given(wild_lists, st.sampled_from(["asc", "desc"]))
def test_argsort(x: d.Array, order: str) -> None:
    g = pg.Graph()
    node = g.input("x", x.shape)
    got = d.run(pg.ops.argsort(node, order), x=x)
    assert np.array_equal(got, oracle_sort.argsort(x, order))
    for k in {0, len(x) // 3, len(x)}:
        best = d.run(pg.ops.top_k(node, k), x=x)
        assert np.array_equal(best, oracle_sort.argsort(x, "desc")[:k])


@given(d.shapes_with_axes, d.seeds)
def test_cumsum(shape: tuple[int, ...], seed: int) -> None:
    x = d.values(shape, seed)
    got = d.run(pg.ops.cumsum(pg.Graph().input("x", shape)), x=x)
    assert d.same(got, np.cumsum(x, axis=-1, dtype=np.float64).astype(np.float32))


@given(d.shapes_with_axes, d.seeds, st.floats(-50, 50, width=32))
def test_soft_max(shape: tuple[int, ...], seed: int, shift: float) -> None:
    """Rows sum to 1; a shift changes nothing; larger is more likely; a mask of -inf gives 0."""
    x = d.values(shape, seed) * 4
    g = pg.Graph()
    node = pg.ops.soft_max(g.input("x", shape))
    p, shifted = d.run(node, x=x), d.run(node, x=x + np.float32(shift))
    assert bool(np.all(p >= 0))
    if x.size == 0:
        return
    assert np.allclose(p.sum(-1), 1, atol=1e-6)
    assert np.allclose(p, shifted, atol=1e-4)
    order = np.argsort(x, axis=-1)
    assert bool(np.all(np.diff(np.take_along_axis(p, order, -1), axis=-1) >= 0))
    mask = np.where(np.arange(shape[-1]) % 2 == 0, 0, -np.inf).astype(np.float32)
    masked = pg.ops.soft_max(g.input("y", shape), mask.reshape((1,) * (len(shape) - 1) + (-1,)))
    half = d.run(masked, y=x)
    assert bool(np.all(half[..., 1::2] == 0))
    assert np.allclose(half.sum(-1), 1, atol=1e-6)
