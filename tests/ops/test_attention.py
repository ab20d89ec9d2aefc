"""flash_attn_ext against float64: shapes (C9), dtypes (C8), layouts, bits, refusals."""

import numpy as np
import pytest
from ops.attn_case import CACHE_DTYPES, Cache, case, check, open_mask, run
from ops.memory import THREADS, same_bits

import pyggml as pg
from oracles import copy as formats
from oracles.attention import causal_mask

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
    for name, operands in {
        "q": (integers, kv, kv),
        "k": (q, integers, kv),
        "v": (q, kv, integers),
    }.items():
        with pytest.raises(pg.DTypeError, match=f"flash_attn_ext: {name} must have a float dtype"):
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
