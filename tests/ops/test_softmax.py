"""soft_max: masks, scales, slopes, sinks, rows without a live position; diag_mask_inf."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, run, run_threads

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


def soft_max_of(x, mask=None, sinks=None, **params):
    return run(pg.ops.soft_max(pg.Graph().const(np.float32(x)), mask, sinks, **params)).numpy()


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


# ---- ALiBi -----------------------------------------------------------------------------------


def distances(t, c):
    """ALiBi's mask: minus the distance to the token, -inf for the future."""
    gap = np.arange(c)[None, :] - np.arange(t)[:, None] - (c - t)
    return np.where(gap <= 0, gap, -np.inf).astype(np.float64)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("max_bias", [8.0, 1.0])
def test_alibi(heads, max_bias):
    check_op(
        pg.ops.soft_max,
        [rand(2, heads, 4, 19), distances(4, 19)],
        oracle.soft_max,
        params={"scale": 0.5, "max_bias": max_bias},
        dtypes=("f32", "f8_e4m3"),
        vary=(0,),
        rows={0: 0},
    )


def test_alibi_slopes_are_those_published():
    """Press et al. 2022: 8 heads give 1/2, 1/4, ..., 1/256; 16 heads 2^-0.5, 2^-1, ..."""
    assert oracle.alibi_slopes(8, 8.0).tolist() == [2.0**-i for i in range(1, 9)]
    np.testing.assert_allclose(oracle.alibi_slopes(16, 8.0), 2.0 ** (-np.arange(1, 17) / 2))
    np.testing.assert_allclose(oracle.alibi_slopes(12, 8.0)[8:], 2.0 ** (-np.arange(4) - 0.5))
    for heads in (1, 7, 8, 12, 16):
        x = np.zeros((heads, 1, 2), np.float32)
        got = soft_max_of(x, np.float32([0, -1]), max_bias=8.0)
        np.testing.assert_allclose(
            np.log(got[:, 0, 0] / got[:, 0, 1]), oracle.alibi_slopes(heads, 8.0), rtol=1e-4
        )


def test_alibi_of_a_mask_per_head_in_f16_and_of_steep_slopes():
    mask = np.float16(rand(3, 4, 19, seed=2))
    x = np.float32(rand(2, 3, 4, 19))
    expected = oracle.soft_max(x, mask, max_bias=4.0)
    np.testing.assert_allclose(soft_max_of(x, mask, max_bias=4.0), expected, rtol=2e-5)
    causal_mask = np.float32(distances(4, 19))
    steep = soft_max_of(x, causal_mask, max_bias=3e38)  # slope 0 but for the cells that are gone
    expected = oracle.soft_max(x, np.where(causal_mask == -np.inf, -np.inf, 0))
    np.testing.assert_allclose(steep, expected, rtol=2e-5)


# ---- sinks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_sinks(heads):
    arrays = [rand(2, heads, 4, 19, scale=3.0), None, rand(heads, seed=5, scale=4.0)]
    params = {"scale": 0.5}
    check_op(pg.ops.soft_max, arrays, oracle.soft_max, params=params, vary=(0,), rows={0: 0})
    arrays[1] = distances(4, 19)
    params["max_bias"] = 8.0
    check_op(pg.ops.soft_max, arrays, oracle.soft_max, params=params, vary=(0,), rows={0: 0})


def test_sinks_and_cells_that_are_gone():
    x = np.float32(rand(2, 3, 9))
    x[0, 1] = np.nan
    mask = np.zeros((2, 3, 9), np.float32)
    mask[0, 1] = -np.inf
    mask[1, 2, 4:] = -np.inf
    sinks = np.float32([1.5, -2.0])
    got = soft_max_of(x, mask, sinks)
    assert (got[0, 1] == 0).all()
    assert (got[1, 2, 4:] == 0).all()
    x[0, 1] = 0
    np.testing.assert_allclose(got, oracle.soft_max(x, mask, sinks), rtol=1e-5)
    assert (got.sum(-1) < 1).all()


def test_sinks_of_every_size():
    x = np.float32(rand(4, 1, 9))
    got = soft_max_of(x, None, np.float32([-np.inf, -1e30, 1e30, np.nan]))
    plain = soft_max_of(x)
    assert np.array_equal(got[:2], plain[:2])
    assert (got[2] == 0).all()
    assert np.isnan(got[3]).all()


def test_strided_sinks():
    g = pg.Graph()
    x, sinks = np.float32(rand(3, 2, 9)), np.float32(rand(6))
    node = pg.ops.soft_max(g.const(x), None, g.const(sinks)[::2])
    expected = oracle.soft_max(x, None, sinks[::2])
    np.testing.assert_allclose(run_threads(node).numpy(), expected, rtol=1e-5)


def test_slopes_and_sinks_refused():
    g = pg.Graph()
    x = g.input("x", (2, 3, 4, 8))
    mask = np.zeros((4, 8), np.float32)
    for shape in ((2,), (4,), (3, 1), (1, 3), ()):
        with pytest.raises(pg.ShapeError, match=r"sinks must be \(H,\)"):
            pg.ops.soft_max(x, mask, np.zeros(shape, np.float32))
    with pytest.raises(pg.ShapeError, match="sinks must be"):
        pg.ops.soft_max(g.input("flat", (4, 8)), None, np.zeros(1, np.float32))
    with pytest.raises(pg.DTypeError, match="sinks must be f32"):
        pg.ops.soft_max(x, mask, np.zeros(3, np.float16))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(pg.ParameterError, match="soft_max: max_bias"):
            pg.ops.soft_max(x, mask, max_bias=bad)
    with pytest.raises(pg.ParameterError, match="max_bias needs a mask"):
        pg.ops.soft_max(x, max_bias=8.0)
    with pytest.raises(pg.ParameterError, match="max_bias needs a mask to multiply and heads"):
        pg.ops.soft_max(g.input("flat2", (4, 8)), mask, max_bias=8.0)


# ---- diag_mask_inf ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_past", [0, 1, 5, 40, 2**53])
@pytest.mark.parametrize("shape", [(4, 4), (3, 9), (9, 3), (2, 3, 4, 31), (1, 5000), (300, 300)])
def test_diag_mask_inf(shape, n_past):
    for dtype in ("f32", "f16", "bf16", "f8_e4m3"):
        x = encode(rand(*shape), dtype)
        node = pg.ops.diag_mask_inf(pg.Graph().const(x), n_past)
        assert node.dtype.name == (dtype if dtype != "f8_e4m3" else "f32")
        expected = oracle.diag_mask_inf(decode(x), n_past)
        assert np.array_equal(decode(run_threads(node)), expected)


@pytest.mark.parametrize("layout", ["strided", "permuted", "in_place"])
def test_diag_mask_inf_layouts(layout):
    def finite(x):
        return pg.ops.soft_max(pg.ops.diag_mask_inf(x, 2))

    check_op(
        finite,
        [rand(3, 5, 9)],
        lambda x: oracle.soft_max(oracle.diag_mask_inf(x, 2)),
        dtypes=(*SCALARS,),
        layouts=(layout,),
    )


def test_diag_mask_inf_hides_nan():
    x = np.full((3, 3), np.nan, np.float32)
    got = run(pg.ops.diag_mask_inf(pg.Graph().const(x), 0)).numpy()
    assert np.array_equal(np.isnan(got), np.tri(3, dtype=bool))
    assert (got[~np.tri(3, dtype=bool)] == -np.inf).all()


def test_diag_mask_inf_refused():
    g = pg.Graph()
    x = g.input("x", (4, 32))
    for dtype in ("f8_e4m3", "q8_0"):
        with pytest.raises(pg.DTypeError, match=f"diag_mask_inf: {dtype} has no infinity"):
            pg.ops.diag_mask_inf(x, 0, dtype=dtype)
    for n_past in (-1, 2**62, 2**70, 1.5):
        with pytest.raises(pg.ParameterError, match="diag_mask_inf: n_past"):
            pg.ops.diag_mask_inf(x, n_past)
    with pytest.raises(pg.ShapeError, match=r"x must be \(..., T, C\)"):
        pg.ops.diag_mask_inf(g.input("v", (4,)))
    with pytest.raises(pg.DTypeError, match="float dtype"):
        pg.ops.diag_mask_inf(g.input("i", (4, 4), "i32"))
    assert pg.ops.diag_mask_inf(g.input("q", (4, 32), "q8_0")).dtype is pg.f32
    assert run(pg.ops.diag_mask_inf(g.const(np.zeros((0, 4), np.float32)))).shape == (0, 4)


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


def test_no_module_answers_to_numpys_spelling():
    assert not hasattr(pg.ops, "softmax")  # "module is not callable" would help nobody
