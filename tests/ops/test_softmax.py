"""soft_max: masks, scales, rows without a live position."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, run

import pyggml as pg
from oracles import softmax as oracle

TO_F32 = dict.fromkeys(SCALARS + BLOCKS, "f32")


def causal(t, c):
    return np.where(np.arange(c)[None, :] <= np.arange(t)[:, None] + c - t, 0.0, -np.inf)


def test_soft_max():
    check_op(pg.ops.soft_max, [rand(5, 67, scale=3.0)], oracle.soft_max, result=TO_F32)
    check_op(pg.ops.soft_max, [rand(3, 96)], oracle.soft_max, dtypes=BLOCKS, result=TO_F32)
    check_op(pg.ops.soft_max, [rand(19)], oracle.soft_max, dtypes=("f32",))


@pytest.mark.parametrize("scale", [0.125, 0.0, -2.0])
def test_scale(scale):
    check_op(pg.ops.soft_max, [rand(5, 33)], oracle.soft_max, params={"scale": scale})


@pytest.mark.parametrize("mask_dtype", ["f32", "f16"])
@pytest.mark.parametrize(
    "shape", [(4, 35), (1, 35), (4, 1), (35,), (1,), (), (3, 4, 35), (1, 4, 35), (2, 1, 1, 35)]
)
def test_mask_broadcasts(shape, mask_dtype):
    mask = rand(*shape, seed=1)
    mask = np.where(mask > 1.0, -np.inf, mask) if mask.size > 4 else mask

    def fn(x, m, **params):
        return pg.ops.soft_max(x, m if mask_dtype == "f32" else pg.ops.cast(m, "f16"), **params)

    def ref(x, m, **params):
        return oracle.soft_max(x, m.astype(mask_dtype.replace("f", "float")), **params)

    for dtype in ("f32", "f8_e4m3"):
        check_op(
            fn,
            [rand(2, 3, 4, 35), mask],
            ref,
            params={"scale": 0.5},
            dtypes=(dtype,),
            vary=(0,),
            layouts=("contiguous", "strided", "in_place", "const"),
        )


def test_many_rows_with_a_causal_mask():
    arrays = [rand(9, 50, 300, scale=4.0), causal(50, 300)]
    check_op(pg.ops.soft_max, arrays, oracle.soft_max, dtypes=("f32",), vary=(0,), rows={0: 0})


def soft_max_of(x, mask=None, **params):
    return run(pg.ops.soft_max(pg.Graph().const(np.float32(x)), mask, **params)).numpy()


def test_masked_positions_are_zero_whatever_they_hold():
    for junk in (np.nan, np.inf, -np.inf, 3e38):
        x = np.float32([[1, junk, 2, junk], [junk, 1, junk, 2]])
        mask = np.float32([[0, -np.inf, 0, -np.inf], [-np.inf, 0, -np.inf, 0]])
        got = soft_max_of(x, mask)
        pair = oracle.soft_max([1.0, 2.0])
        np.testing.assert_allclose(got[0, ::2], pair, rtol=1e-6)
        np.testing.assert_allclose(got[1, 1::2], pair, rtol=1e-6)
        assert (got[0, 1::2] == 0).all()
        assert (got[1, ::2] == 0).all()


@pytest.mark.parametrize("mask_dtype", [np.float32, np.float16])
def test_a_row_that_is_all_masked_gives_zeros(mask_dtype):
    for row in (0, 1, 2):
        mask = np.zeros((3, 40), mask_dtype)
        mask[row] = -np.inf
        x = rand(3, 40)
        x[row, 3] = np.nan
        got = soft_max_of(x, mask)
        assert (got[row] == 0).all()
        np.testing.assert_allclose(np.delete(got, row, 0).sum(-1), 1, rtol=1e-6)
    assert (soft_max_of(rand(1, 40), np.full((1, 40), -np.inf, mask_dtype)) == 0).all()


def test_large_scores():
    np.testing.assert_allclose(soft_max_of([[1e30, 1e30, -1e30]]), [[0.5, 0.5, 0]])
    np.testing.assert_allclose(
        soft_max_of([[700.0, 710.0]]), oracle.soft_max([[700.0, 710.0]]), rtol=1e-5
    )
    assert np.isnan(soft_max_of([[1.0, np.nan, 2.0]])).any()


@pytest.mark.parametrize("dtype", ["f16", "f8_e4m3", "q8_0"])
def test_result_dtype(dtype):
    def fn(x):
        return pg.ops.soft_max(x, dtype=dtype)

    check_op(fn, [rand(5, 64)], oracle.soft_max, dtypes=("f32", dtype))


def test_empty_rows():
    assert run(pg.ops.soft_max(pg.Graph().const(np.zeros((3, 0), np.float32)))).shape == (3, 0)


def test_refused():
    g = pg.Graph()
    x = g.input("x", (2, 4, 8))
    for shape in ((7,), (3, 8), (4, 4, 8), (1, 2, 4, 8), (0, 8)):
        with pytest.raises(pg.ShapeError, match="soft_max: mask does not broadcast to x"):
            pg.ops.soft_max(x, np.zeros(shape, np.float32))
    for dtype in ("bf16", "f8_e4m3", "i32"):
        with pytest.raises(pg.DTypeError, match="mask must be f32 or f16"):
            pg.ops.soft_max(x, pg.zeros((4, 8), dtype))
    for scale in (np.nan, np.inf):
        with pytest.raises(pg.ParameterError, match="soft_max: scale"):
            pg.ops.soft_max(x, scale=scale)
    with pytest.raises(pg.ShapeError, match="x needs an axis"):
        pg.ops.soft_max(g.input("s", ()))
    with pytest.raises(pg.DTypeError, match="float dtype"):
        pg.ops.soft_max(g.input("i", (4,), "i64"))
    assert decode(encode(np.zeros(1), "f32"))[0] == 0
