"""flash_attn_ext against float64; masked cells, scales, bits."""

import numpy as np
import pytest

import pyggml as pg
from oracles import copy as formats
from oracles.attention import causal_mask
from oracles.attention import flash_attn_ext as oracle
from oracles.nmse import nmse, ulp_diff_f32

CACHE_DTYPES = ("f32", "f16", "bf16", "f8_e4m3", "q8_0")
THREADS = (1, 2, 5)


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


class Cache:
    """One side of a cache: (B, C, G*D) bytes, of which attention sees (B, G, C, D)."""

    def __init__(self, values, dtype):
        """`values`: (B, G, C, D)."""
        self.shape = b, g, c, d = values.shape
        self.dtype = dtype
        rows = np.ascontiguousarray(values.transpose(0, 2, 1, 3)).reshape(b, c, g * d)
        raw = formats.encode(rows, dtype)
        self.raw = raw.reshape(b, c, raw.shape[-1])

    @property
    def values(self):
        b, g, c, d = self.shape
        return formats.decode(self.raw, self.dtype).reshape(b, c, g, d).transpose(0, 2, 1, 3)

    def filled(self, cells, byte):
        """A copy whose `cells` hold `byte` everywhere."""
        other = object.__new__(Cache)
        other.shape, other.dtype, other.raw = self.shape, self.dtype, self.raw.copy()
        other.raw[:, cells] = byte
        return other

    def node(self, g, dense=False):
        b, heads, c, d = self.shape
        if dense:
            raw = formats.encode(np.ascontiguousarray(self.values), self.dtype)
            return g.const(pg.Tensor.from_raw(raw, self.shape, self.dtype))
        t = pg.Tensor.from_raw(self.raw, (b, c, heads * d), self.dtype)
        return pg.ops.permute(g.const(t).reshape(b, c, heads, d), (0, 2, 1, 3))


def run(q, k, v, mask=None, scale=0.125, threads=1, dtype=None, mask_dtype=np.float32, dense=False):
    g = pg.Graph()
    if mask is not None:
        mask = g.const(np.asarray(mask).astype(mask_dtype))
    kn, vn = k.node(g, dense), v.node(g, dense)
    y = pg.ops.flash_attn_ext(g.const(q), kn, vn, mask, scale=scale, dtype=dtype)
    return g.compile(y, threads=threads)()


def case(n_tokens, n_cells, heads=(9, 3), d=64, dv=None, k_dtype="f32", v_dtype=None, batch=1):
    n_heads, n_kv = heads
    k = Cache(random(batch, n_kv, n_cells, d, seed=1), k_dtype)
    v = Cache(random(batch, n_kv, n_cells, dv or d, seed=2), v_dtype or k_dtype)
    return random(batch, n_heads, n_tokens, d, seed=3), k, v


def open_mask(n_tokens, n_cells, share=0.7):
    """Random cells are hidden, the others get a bias."""
    rng = np.random.default_rng([n_tokens, n_cells])
    bias = rng.standard_normal((n_tokens, n_cells)).astype(np.float16)
    return np.where(rng.random((n_tokens, n_cells)) < share, bias, -np.inf).astype(np.float32)


def check(q, k, v, mask=None, scale=0.125, **kwargs):
    y = run(q, k, v, mask, scale, **kwargs)
    expected = oracle(q, k.values, v.values, mask, scale)
    assert y.dtype == np.float32
    assert y.shape == expected.shape
    assert nmse(y, expected) <= 1e-11
    assert np.abs(y - expected).max(initial=0) <= 2e-5 * np.nanmax(np.abs(v.values), initial=1)
    return y


def same_bits(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_cells", [1, 15, 16, 63, 64, 65, 300, 1000])
@pytest.mark.parametrize("n_tokens", [1, 2, 5, 33])
def test_tokens_and_cells(n_tokens, n_cells, masked):
    mask = open_mask(n_tokens, n_cells) if masked else None
    check(*case(n_tokens, n_cells, heads=(6, 2), d=32), mask, 0.2)


@pytest.mark.parametrize("v_dtype", CACHE_DTYPES)
@pytest.mark.parametrize("k_dtype", CACHE_DTYPES)
def test_cache_dtypes(k_dtype, v_dtype):
    for n_tokens in (1, 5):
        q, k, v = case(n_tokens, 100, k_dtype=k_dtype, v_dtype=v_dtype)
        y = check(q, k, v, open_mask(n_tokens, 100))
        assert same_bits(y, run(q, k, v, open_mask(n_tokens, 100), dense=True))


@pytest.mark.parametrize("dtype", ["q4_0", "q4_1"])
def test_more_block_formats(dtype):
    check(*case(3, 70, d=32, k_dtype=dtype))


@pytest.mark.parametrize("d", [1, 3, 16, 17, 64, 80, 96, 112, 128, 256, 512])
def test_head_sizes(d):
    for n_tokens in (1, 4):
        check(*case(n_tokens, 70, heads=(4, 2), d=d), causal_mask(n_tokens, 60, 70), d**-0.5)


@pytest.mark.parametrize(("d", "dv"), [(64, 32), (32, 64), (8, 1), (1, 20), (48, 33)])
def test_head_size_of_v_differs(d, dv):
    for n_tokens in (1, 9):
        y = check(*case(n_tokens, 70, d=d, dv=dv), open_mask(n_tokens, 70))
        assert y.shape == (1, n_tokens, 9, dv)


@pytest.mark.parametrize("heads", [(9, 3), (8, 1), (1, 1), (5, 5), (4, 1), (10, 2), (100, 1)])
@pytest.mark.parametrize("n_tokens", [1, 7, 100])
def test_grouped_heads(n_tokens, heads):
    check(*case(n_tokens, 130, heads=heads, d=16), causal_mask(n_tokens, 25, 130))


@pytest.mark.parametrize("q_dtype", ["f16", "bf16", "f8_e4m3"])
def test_query_dtypes(q_dtype):
    q, k, v = case(5, 70)
    raw = formats.encode(q, q_dtype)
    g = pg.Graph()
    qn = g.const(pg.Tensor.from_raw(raw, q.shape, q_dtype))
    y = pg.ops.flash_attn_ext(qn, k.node(g), v.node(g), scale=0.125)
    exact = formats.decode(raw, q_dtype).reshape(q.shape).astype(np.float32)
    assert same_bits(g.compile(y)(), check(exact, k, v))


def test_query_layouts():
    q, k, v = case(5, 70, batch=2)
    expected = check(q, k, v)
    for axes in ((0, 2, 1, 3), (3, 1, 2, 0), (2, 3, 0, 1)):
        g = pg.Graph()
        spread = g.const(np.ascontiguousarray(q.transpose(axes)))
        qn = pg.ops.permute(spread, np.argsort(axes).tolist())
        y = pg.ops.flash_attn_ext(qn, k.node(g), v.node(g), scale=0.125)
        assert same_bits(g.compile(y)(), expected)


@pytest.mark.parametrize("n_tokens", [1, 9, 40])
def test_batch(n_tokens):
    q, k, v = case(n_tokens, 600, heads=(4, 2), d=16, batch=3)
    mask = open_mask(n_tokens, 600)
    y = check(q, k, v, mask)
    for b in range(3):
        one = [Cache(side.values[b : b + 1].astype(np.float32), "f32") for side in (k, v)]
        assert same_bits(y[b : b + 1], run(q[b : b + 1], *one, mask))


def test_three_axes():
    q, k, v = case(5, 70)
    g = pg.Graph()
    kn, vn = (pg.ops.reshape(side.node(g, dense=True), side.shape[1:]) for side in (k, v))
    y = g.compile(pg.ops.flash_attn_ext(g.const(q[0]), kn, vn, scale=0.125))()
    assert same_bits(y, check(q, k, v)[0])


@pytest.mark.parametrize("n_tokens", [1, 3, 9, 33, 200])
def test_many_chunks_and_blocks(n_tokens):
    """All ways to cut: several chunks of each size, several blocks, blocks without chunks."""
    q, k, v = case(n_tokens, 2100, heads=(8, 1), d=16, k_dtype="f8_e4m3")
    check(q, k, v, causal_mask(n_tokens, 1800, 2100))
    check(q, k, v, open_mask(n_tokens, 2100, 0.002))


@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0])
def test_scale(scale):
    check(*case(3, 70), None, scale)


def test_large_scores():
    q, k, v = case(3, 300, d=16)
    check(q * 50, k, v, causal_mask(3, 297), 1.0)


def test_mask_layouts_and_dtypes():
    q, k, v = case(5, 100)
    mask = open_mask(5, 100)
    expected = check(q, k, v, mask)
    assert same_bits(expected, run(q, k, v, mask, mask_dtype=np.float16))
    for spread, view in (
        (mask.T.copy(), lambda m: m.T),
        (np.repeat(mask, 2, axis=1), lambda m: m[:, ::2]),
        (np.pad(mask, 3, constant_values=7), lambda m: m[3:-3, 3:-3]),
    ):
        for kind in (np.float32, np.float16):
            g = pg.Graph()
            m = view(g.const(spread.astype(kind)))
            y = pg.ops.flash_attn_ext(g.const(q), k.node(g), v.node(g), m, scale=0.125)
            assert same_bits(g.compile(y)(), expected)


@pytest.mark.parametrize("dtype", CACHE_DTYPES)
@pytest.mark.parametrize(("n_tokens", "n_cells"), [(1, 600), (5, 70), (20, 70)])
def test_result_dtype_rounds_once(n_tokens, n_cells, dtype):
    q, k, v = case(n_tokens, n_cells)
    expected = formats.encode(run(q, k, v), dtype)
    y = run(q, k, v, dtype=dtype, threads=2)
    raw = y.raw() if isinstance(y, pg.Tensor) else y.view(np.uint8)
    assert np.array_equal(raw.ravel(), expected.ravel())


@pytest.mark.parametrize("n_tokens", [0, 1, 9])
@pytest.mark.parametrize("n_cells", [0, 5])
@pytest.mark.parametrize("batch", [0, 1])
def test_no_elements(n_tokens, n_cells, batch):
    q, k, v = case(n_tokens, n_cells, batch=batch)
    mask = np.zeros((n_tokens, n_cells), np.float32)
    for m in (None, mask):
        y = run(q, k, v, m)
        assert y.shape == (batch, n_tokens, 9, 64)
        assert n_cells or not y.any()


# ---- bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8_e4m3"])
@pytest.mark.parametrize("n_tokens", [1, 2, 5, 33, 100])
def test_same_bits_for_every_thread_count(n_tokens, dtype):
    q, k, v = case(n_tokens, 1100, k_dtype=dtype)
    mask = causal_mask(n_tokens, 900, 1100)
    results = [run(q, k, v, mask, threads=t) for t in THREADS]
    assert all(same_bits(results[0], y) for y in results[1:])


@pytest.mark.parametrize("n_tokens", [1, 9, 200])
def test_unused_room_changes_nothing(n_tokens):
    q, k, v = case(n_tokens, 1500, heads=(8, 2), d=16)
    mask = causal_mask(n_tokens, 80, 1500)
    expected = run(q, k, v, mask)
    for room in (280, 512, 1100):
        short = [Cache(side.values[:, :, :room].astype(np.float32), "f32") for side in (k, v)]
        assert same_bits(run(q, *short, mask[:, :room]), expected)


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


@pytest.mark.parametrize(("n_cells", "ulps"), [(1, 1), (2, 4), (64, 8), (300, 8), (1000, 8)])
@pytest.mark.parametrize("n_tokens", [1, 9])
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


# ---- refusals --------------------------------------------------------------------------------

Q, KV = (2, 6, 5, 16), (2, 3, 7, 16)


@pytest.mark.parametrize(
    ("q", "k", "v", "mask", "message"),
    [
        (
            Q,
            (2, 4, 7, 16),
            (2, 4, 7, 16),
            None,
            "6 query heads are not a multiple of the 4 kv heads",
        ),
        (Q, (2, 0, 7, 16), (2, 0, 7, 16), None, "not a multiple of the 0 kv heads"),
        (Q, (2, 3, 7, 8), KV, None, "head sizes of q and k differ"),
        ((2, 6, 5, 0), (2, 3, 7, 0), KV, None, "head sizes must be at least 1"),
        (Q, KV, (2, 3, 7, 0), None, "head sizes must be at least 1"),
        (Q, KV, (2, 3, 8, 16), None, "k and v differ in heads or cells"),
        (Q, KV, (2, 6, 7, 16), None, "k and v differ in heads or cells"),
        (Q, (1, 3, 7, 16), KV, None, "batch sizes differ"),
        (Q, KV, (1, 3, 7, 16), None, "batch sizes differ"),
        (Q, KV[1:], KV[1:], None, "all with or all without B"),
        (Q[1:], KV, KV, None, "all with or all without B"),
        ((5, 16), (7, 16), (7, 16), None, "all with or all without B"),
        (Q, KV, KV, (5, 8), r"the mask must be \(T, C\) = \(5, 7\)"),
        (Q, KV, KV, (1, 7), r"the mask must be \(T, C\) = \(5, 7\)"),
        (Q, KV, KV, (1, 5, 7), r"the mask must be \(T, C\) = \(5, 7\)"),
    ],
)
def test_refused_shapes(q, k, v, mask, message):
    g = pg.Graph()
    operands = [
        g.input(n, s) for n, s in zip("qkvm", (q, k, v, mask), strict=True) if s is not None
    ]
    with pytest.raises(pg.ShapeError, match=message):
        pg.ops.flash_attn_ext(*operands, scale=0.1)


def test_rows_of_k_and_v_must_be_contiguous():
    g = pg.Graph()
    q, kv, wide = g.input("q", Q), g.input("kv", KV), g.input("w", (*KV[:3], 32))
    for k, v in ((wide[..., ::2], kv), (kv, wide[..., ::2])):
        with pytest.raises(pg.ShapeError, match="rows of k and v must be contiguous"):
            pg.ops.flash_attn_ext(q, k, v, scale=0.1)


def test_refused_dtypes():
    g = pg.Graph()
    q, kv = g.input("q", Q), g.input("kv", KV)
    integers, mask = g.input("i", KV, "i32"), g.input("m", (5, 7), "bf16")
    for operands in ((integers, kv, kv), (q, integers, kv), (q, kv, integers)):
        with pytest.raises(pg.DTypeError, match="q, k and v must be of float types"):
            pg.ops.flash_attn_ext(*operands, scale=0.1)
    with pytest.raises(pg.DTypeError, match="the mask must be f32 or f16"):
        pg.ops.flash_attn_ext(q, kv, kv, mask, scale=0.1)
    with pytest.raises(pg.ShapeError, match="head size that is a multiple of 32"):
        pg.ops.flash_attn_ext(q, kv, kv, scale=0.1, dtype="q8_0")
    with pytest.raises(pg.DTypeError, match="the result cannot be i64"):
        pg.ops.flash_attn_ext(q, kv, kv, scale=0.1, dtype="i64")


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_refused_scale(scale):
    g = pg.Graph()
    q, kv = g.input("q", Q), g.input("kv", KV)
    with pytest.raises(pg.ParameterError):
        pg.ops.flash_attn_ext(q, kv, kv, scale=scale)
