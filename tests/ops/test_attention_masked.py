"""flash_attn_ext: what static scales (C1, C2) and masked cells (C5, C6) may do to a result."""

import numpy as np
import pytest
from ops.attn_case import CACHE_DTYPES, Cache, case, check, open_mask, run
from ops.memory import at_guard_page, random, same_bits

import pyggml as pg
from oracles.attention import causal_mask
from oracles.attention import flash_attn_ext as oracle
from oracles.nmse import nmse, ulp_diff_f32

# ---- scales ----------------------------------------------------------------------------------


def scaled(q, k, v, k_scale, v_scale, q_node=True, out_node=True):
    """Attention over an E4M3 cache with static scales: stored bytes of K and V, and the output."""
    g = pg.Graph()
    qn = g.const(q) * k_scale if q_node else g.const(q)
    kn = pg.ops.cast(g.const(k) / k_scale, "f8_e4m3")
    vn = pg.ops.cast(g.const(v) / v_scale, "f8_e4m3")
    y = pg.ops.flash_attn_ext(qn, kn, vn, scale=0.125)
    if out_node:
        y = y * v_scale
    k_raw, v_raw, out = g.compile([kn, vn, y])()
    return k_raw.view(np.uint8), v_raw.view(np.uint8), out


@pytest.mark.parametrize("n_tokens", [1, 9])
@pytest.mark.parametrize(("a", "b"), [(a, b) for a in range(-6, 7, 2) for b in (-6, -1, 0, 5, 6)])
def test_scales_are_exact(a, b, n_tokens):
    """Moving powers of two between the operands and the scales changes no bit."""
    q, k, v = (
        random(1, 9, n_tokens, 64),
        random(1, 3, 300, 64, seed=1),
        random(1, 3, 300, 64, seed=2),
    )
    base_k, base_v, base = scaled(q, k, v, 1.0, 1.0)
    moved = q * 2.0**-a, k * 2.0**a, v * 2.0**b, 2.0**a, 2.0**b
    moved = [np.float32(x) if isinstance(x, np.ndarray) else x for x in moved]
    k_raw, v_raw, y = scaled(*moved)
    assert same_bits(k_raw, base_k)
    assert same_bits(v_raw, base_v)
    assert same_bits(y, base * np.float32(2.0**b))
    if a:
        assert not same_bits(scaled(*moved, q_node=False)[2], y)
    if b:
        assert not same_bits(scaled(*moved, out_node=False)[2], y)


@pytest.mark.parametrize("a", [-40, -6, 6, 40])
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_magnitude_moves_freely_between_q_and_k(n_tokens, a):
    q, k, v = case(n_tokens, 300)
    moved = Cache((k.values * 2.0**a).astype(np.float32), "f32")
    assert same_bits(run(q * np.float32(2.0**-a), moved, v), run(q, k, v))
    assert same_bits(
        run(q, k, Cache((v.values * 2.0**a).astype(np.float32), "f32")),
        run(q, k, v) * np.float32(2.0**a),
    )


@pytest.mark.parametrize(
    ("n_cells", "ulps"), [(1, 1), (2, 4), (7, 4), (64, 4), (300, 4), (1000, 4)]
)
@pytest.mark.parametrize("n_tokens", [1, 9, 64])
def test_direction_of_the_scale(n_tokens, n_cells, ulps):
    # with one cell weight and sum are 1; with more both are rounded sums of n_cells terms
    q, k = random(1, 9, n_tokens, 64), random(1, 3, n_cells, 64, seed=1)
    v = np.full((1, 3, n_cells, 64), 1000.0, np.float32)
    _, v_raw, y = scaled(q, k, v, 1.0, float(np.float32(1000 / 448)))
    assert (v_raw == 0x7E).all()
    assert ulp_diff_f32(y, np.full_like(y, 1000.0)).max() <= ulps
    _, v_raw, y = scaled(q, k, v, 1.0, 1.0)
    assert (v_raw == 0x7E).all()
    assert ulp_diff_f32(y, np.full_like(y, 448.0)).max() <= ulps


# ---- masked cells ----------------------------------------------------------------------------


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
@pytest.mark.parametrize("dtype", CACHE_DTYPES)
@pytest.mark.parametrize("n_tokens", [1, 3, 33])
@pytest.mark.parametrize("side", ["k", "v", "both"])
def test_stale_bytes_in_unused_cells(side, n_tokens, dtype, byte):
    """Bytes that are NaN in most formats, where nobody looks: at the end, between, before."""
    q, k, v = case(n_tokens, 64, k_dtype=dtype)
    for hidden in (slice(3, 64), slice(0, 60), slice(1, 64, 2), slice(20, 40)):
        mask = open_mask(n_tokens, 64, 2.0)
        mask[:, hidden] = -np.inf
        zeroed = run(q, k.filled(hidden, 0), v.filled(hidden, 0), mask)
        assert np.isfinite(zeroed).all()
        stale_k = k.filled(hidden, byte if side != "v" else 0)
        stale_v = v.filled(hidden, byte if side != "k" else 0)
        assert same_bits(run(q, stale_k, stale_v, mask, threads=2), zeroed)


@pytest.mark.parametrize("n_tokens", [1, 33, 200])
def test_stale_bytes_across_tiles_and_chunks(n_tokens):
    q, k, v = case(n_tokens, 1300, heads=(8, 2), d=16, k_dtype="f8_e4m3")
    mask = open_mask(n_tokens, 1300)
    hidden = np.random.default_rng(5).random(1300) < 0.4
    hidden[100:400] = hidden[1200:] = True
    mask[:, hidden] = -np.inf
    zeroed = run(q, k.filled(hidden, 0), v.filled(hidden, 0), mask)
    assert same_bits(run(q, k.filled(hidden, 0xFF), v.filled(hidden, 0x7F), mask), zeroed)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8_e4m3"])
@pytest.mark.parametrize("side", ["k", "v"])
def test_nan_reaches_those_who_see_it_only(side, dtype):
    n_tokens, n_cells, at = 20, 90, 75
    q, k, v = case(n_tokens, n_cells, k_dtype=dtype)
    mask = causal_mask(n_tokens, n_cells - n_tokens)
    cells = slice(at, at + 1)
    clean = run(q, k.filled(cells, 0), v.filled(cells, 0), mask)
    bad_k = k.filled(cells, 0xFF if side == "k" else 0)
    bad_v = v.filled(cells, 0xFF if side == "v" else 0)
    y = run(q, bad_k, bad_v, mask)
    sees = np.arange(n_tokens) + n_cells - n_tokens >= at
    assert 0 < sees.sum() < n_tokens
    assert np.isnan(y[:, sees]).all()
    assert same_bits(y[:, ~sees], clean[:, ~sees])


@pytest.mark.parametrize("n_tokens", [1, 9])
def test_nan_without_a_mask(n_tokens):
    q, k, v = case(n_tokens, 70, heads=(6, 2))
    clean = run(q, k, v)
    v.raw.view(np.float32)[0, 65, 64 + 5] = np.nan  # kv head 1, column 5
    y = run(q, k, v)
    assert np.isnan(y[:, :, 3:, 5]).all()
    y[:, :, 3:, 5] = clean[:, :, 3:, 5]
    assert same_bits(y, clean)


def test_infinite_v_where_hidden():
    q, k, v = case(4, 70, k_dtype="f16")
    mask = open_mask(4, 70, 2.0)
    mask[:2, 10:20] = -np.inf
    clean = run(q, k, v.filled(slice(10, 20), 0), mask)
    endless = v.filled(slice(10, 20), 0)
    endless.raw.view("<u2")[:, 10:20] = 0x7C00
    y = run(q, k, endless, mask)
    assert same_bits(y[:, :2], clean[:, :2])
    assert np.isposinf(y[:, 2:]).all()


@pytest.mark.parametrize("n_tokens", [1, 9])
def test_cells_past_the_end_are_not_read(n_tokens):
    """The cache is longer than the view: NaN right behind the last cell."""
    for n_cells in (1, 60, 65, 300):
        q, k, v = case(n_tokens, n_cells + 9, k_dtype="f8_e4m3")
        k, v = (side.filled(slice(n_cells, None), 0x7F) for side in (k, v))
        g = pg.Graph()
        kn, vn = (side.node(g)[:, :, :n_cells] for side in (k, v))
        y = g.compile(pg.ops.flash_attn_ext(g.const(q), kn, vn, scale=0.125))()
        expected = oracle(q, k.values[:, :, :n_cells], v.values[:, :, :n_cells], None, 0.125)
        assert nmse(y, expected) <= 1e-11


@pytest.mark.parametrize("dtype", CACHE_DTYPES)
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_nothing_behind_the_cache_is_read(n_tokens, dtype):
    for n_cells in (1, 37, 65):
        q, k, v = case(n_tokens, n_cells, d=32, k_dtype=dtype)
        expected = check(q, k, v)
        for side in (k, v):
            side.raw = at_guard_page(side.raw).reshape(side.raw.shape)
        assert same_bits(run(q, k, v), expected)


@pytest.mark.parametrize("rows", [[0, 1], [4, 5], [8], [0, 4, 8], list(range(9))])
@pytest.mark.parametrize("n_cells", [5, 64, 300])
def test_fully_masked_rows_give_zeros(rows, n_cells):
    q, k, v = case(9, n_cells, k_dtype="f8_e4m3")
    k, v = k.filled(slice(0, 2), 0x7F), v.filled(slice(0, 2), 0x7F)
    mask = open_mask(9, n_cells, 2.0)
    mask[:, :2] = -np.inf
    mask[rows] = -np.inf
    y = check(q, k, v, mask)
    assert same_bits(y[:, rows], np.zeros_like(y[:, rows]))
    assert y[:, [t for t in range(9) if t not in rows]].all()


@pytest.mark.parametrize("n_cells", [1, 64, 1000])
def test_the_only_row_fully_masked(n_cells):
    q, k, v = case(1, n_cells)
    y = run(
        q, k.filled(slice(None), 0xFF), v.filled(slice(None), 0xFF), np.full((1, n_cells), -np.inf)
    )
    assert same_bits(y, np.zeros_like(y))


def test_leading_chunks_fully_masked():
    """The first chunks hold nothing that a row sees: they must not enter the join."""
    for n_tokens in (1, 9):
        q, k, v = case(n_tokens, 2100, heads=(4, 2), d=16)
        mask = np.full((n_tokens, 2100), -np.inf, np.float32)
        mask[:, 2050:] = 0
        mask[0, 700:710] = 0
        check(q, k, v, mask)
