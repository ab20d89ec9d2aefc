"""Ends of the range: values near the largest float, infinities, NaN, subnormals, huge positions."""

import numpy as np
import pytest
from ops.check import run

import pyggml as pg

ops = pg.ops
MAX = np.float32(3.4028235e38)
TINY = np.float32(1e-40)
INF, NAN = np.float32(np.inf), np.float32(np.nan)
SCALARS = ("f32", "f16", "bf16", "f8_e4m3")
BLOCKS = ("q8_0", "q4_0", "q5_1", "q4_k", "q6_k", "mxfp4")


def f32(*values):
    return np.array(values, np.float32)


def value(op, *arrays, **params):
    g = pg.Graph()
    return run(op(*(g.const(np.asarray(a)) for a in arrays), **params)).numpy()


def same(got, expected):
    np.testing.assert_array_equal(got, np.asarray(expected, np.float32))


# ---- products ----


@pytest.mark.parametrize("k", [2, 16, 64, 100, 256])
def test_a_sum_near_the_largest_float(k):
    """One term, and k terms that are MAX together."""
    w, x = np.zeros((1, k), np.float32), np.ones((1, k), np.float32)
    w[0, k // 2] = MAX
    same(value(ops.mul_mat, w, x), [[MAX]])
    even = value(ops.mul_mat, np.full((1, k), MAX / np.float32(k)), x)
    np.testing.assert_allclose(even, [[MAX]], rtol=1e-5)
    w[0] = MAX
    same(value(ops.mul_mat, w, x), [[INF]])


@pytest.mark.parametrize("dtype", [*SCALARS, *BLOCKS])
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_what_is_not_finite_reaches_its_row_only(dtype, rows):
    k = 256
    w = pg.tensor(np.ones((5, k), np.float32), dtype=dtype)
    for special, expected in (
        (f32(INF), INF),
        (f32(-INF), -INF),
        (f32(NAN), NAN),
        (f32(INF, -INF), NAN),
    ):
        for at in (0, 31, 100, k - 2):
            x = np.ones((rows, k), np.float32)
            x[rows // 2, at : at + special.size] = special
            got = value(lambda x: ops.mul_mat(w, x), x)
            same(got[rows // 2], np.full(5, expected))
            assert np.isfinite(np.delete(got, rows // 2, axis=0)).all()


@pytest.mark.parametrize("dtype", SCALARS)
def test_zero_times_what_is_not_finite(dtype):
    w = pg.tensor(np.zeros((2, 64), np.float32), dtype=dtype)
    for special in (INF, -INF, NAN):
        x = np.zeros((1, 64), np.float32)
        x[0, 7] = special
        assert np.isnan(value(lambda x: ops.mul_mat(w, x), x)).all()


@pytest.mark.parametrize("dtype", [d for d in SCALARS if d != "f8_e4m3"])
def test_not_finite_weights(dtype):
    for special in (INF, -INF, NAN):
        w = np.ones((3, 64), np.float32)
        w[1, 5] = special
        got = value(ops.mul_mat, pg.tensor(w, dtype=dtype).numpy(), np.ones((2, 64), np.float32))
        same(got, [[64, special, 64]] * 2)


@pytest.mark.parametrize("dtype", SCALARS)
def test_subnormal_terms(dtype):
    """Sums of F32 subnormals are exact; f8_e4m3 keeps 2^-136 of the unit."""
    x = np.zeros((1, 64), np.float32)
    x[0, ::2] = TINY
    got = value(lambda x: ops.mul_mat(pg.tensor(np.ones((1, 64), np.float32), dtype=dtype), x), x)
    exact = np.float64(TINY) * 32
    bound = 72 * 2.0**-136 if dtype == "f8_e4m3" else 0.0
    assert abs(np.float64(got[0, 0]) - exact) <= bound


@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_formats_have_room_to_1e30(dtype):
    """Codes are summed before the scale: no partial sum overflows up to there."""
    x = np.full((1, 256), 1e30, np.float32)
    x[0, 1::2] *= -1
    w = np.ones((1, 256), np.float32)
    got = value(lambda x: ops.mul_mat(pg.tensor(w, dtype=dtype), x), x)
    assert abs(got[0, 0]) <= 1e30 * 256 * 1e-5


def test_a_product_much_larger_than_its_operands():
    a = np.arange(8192, dtype=np.float32).reshape(4096, 2) / 4096
    b = np.arange(8192, dtype=np.float32).reshape(4096, 2) / 8192 - 0.5
    g = pg.Graph()
    node = g.input("a", (4096, 2)) @ g.const(b).T
    program = g.compile(node, threads=2)
    assert program.arena_bytes >= 4096 * 4096 * 4
    got = program(a=a)
    wide = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(got - wide).max() <= 4 * 2.0**-24


# ---- attention ----


def attention(q, k, v, mask=None, scale=1.0):
    operands = [np.float32(q).reshape(1, 1, -1), np.float32(k)[None], np.float32(v)[None]]
    if mask is not None:
        operands.append(np.float32(mask)[None])
    return value(ops.flash_attn_ext, *operands, scale=scale)[0, 0]


@pytest.mark.parametrize("cells", [2, 70, 600])
def test_attention_scores_at_the_ends(cells):
    v = np.ones((cells, 4), np.float32)
    v[0] = [1, 2, 3, 4]
    k = np.zeros((cells, 4), np.float32)
    k[0] = 1e19
    assert np.isnan(attention([1e19] * 4, k, v)).all()  # 4e38: a score of +inf
    same(attention([1e15] * 4, k, v), [1, 2, 3, 4])
    same(attention([-1e15] * 4, k, v), [1, 1, 1, 1])
    k[1:] = -1e19
    same(attention([1e15] * 4, k, v), [1, 2, 3, 4])


@pytest.mark.parametrize("cells", [1, 3, 70, 600])
def test_attention_values_have_room(cells):
    """Weighted sums are made before the division: they hold cells * |v|."""
    v = np.full((cells, 4), MAX / np.float32(2 * cells), np.float32)
    got = attention([1.0] * 4, np.zeros((cells, 4), np.float32), v)
    np.testing.assert_allclose(got, v[0], rtol=1e-6)


def test_attention_of_what_is_not_finite():
    zeros, ones = np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32)
    for special in (INF, -INF, NAN):
        v = ones.copy()
        v[1, 2] = special
        same(attention([1.0] * 4, zeros, v), [1, 1, special, 1])
        same(attention([1.0] * 4, zeros, v, [0, -INF, 0]), [1, 1, 1, 1])
        k = zeros.copy()
        k[1, 2] = special
        got = attention([1.0] * 4, k, ones)
        if special == -INF:
            same(got, [1, 1, 1, 1])
        else:
            assert np.isnan(got).all()
        same(attention([1.0] * 4, k, ones, [0, -INF, 0]), [1, 1, 1, 1])


# ---- rows ----


def test_soft_max_ends():
    same(value(ops.soft_max, f32(-INF, -INF)), [0, 0])
    same(value(ops.soft_max, f32(-INF, 0, 0)), [0, 0.5, 0.5])
    same(value(ops.soft_max, f32(MAX, -MAX, 0)), [1, 0, 0])
    same(value(ops.soft_max, f32(MAX, MAX), scale=0.5), [0.5, 0.5])
    same(value(ops.soft_max, f32(TINY, -TINY)), [0.5, 0.5])
    for x in (f32(INF, 0), f32(INF, INF), f32(NAN, 0), f32(INF, -INF), f32(0, NAN, -INF)):
        assert np.isnan(value(ops.soft_max, x)).all()
    for hidden in (INF, NAN, MAX):
        same(value(ops.soft_max, f32(hidden, 1), f32(-INF, 0)), [0, 1])


def test_a_mask_may_be_its_own_scores():
    x = f32(-1, 2, -INF, 0.5)
    wide = np.exp(2 * x.astype(np.float64) - 4)
    g = pg.Graph()
    node = g.input("x", (4,)) * 1.0
    got = g.compile(ops.soft_max(node, node), threads=1)(x=x)
    np.testing.assert_allclose(got, wide / wide.sum(), rtol=1e-6)


@pytest.mark.parametrize("normalized", [True, False])
def test_fwht_ends(normalized):
    """Sums are made before the factor 1 / sqrt(n): they hold n |x|."""
    factor = 0.5 if normalized else 1.0
    same(
        value(ops.fwht, f32(MAX / 4, MAX / 4, MAX / 4, MAX / 4), normalized=normalized),
        [MAX * np.float32(factor), 0, 0, 0],
    )
    same(value(ops.fwht, f32(MAX, 0, 0, 0), normalized=normalized), [MAX * np.float32(factor)] * 4)
    same(value(ops.fwht, f32(INF, 0, 0, 0), normalized=normalized), [INF] * 4)
    assert np.isnan(value(ops.fwht, f32(0, NAN, 0, 0), normalized=normalized)).all()
    same(value(ops.fwht, f32(TINY, 0, 0, 0), normalized=False), [TINY] * 4)


@pytest.mark.parametrize(
    ("op", "row", "expected"),
    [
        ("sum_rows", (MAX, MAX, -MAX, -MAX), (0,)),
        ("sum_rows", (MAX, MAX), (INF,)),
        ("mean", (MAX, MAX), (MAX,)),
        ("mean", (MAX, MAX, -MAX, MAX), (MAX / 2,)),
        ("cumsum", (MAX, MAX, -MAX, 1), (MAX, INF, MAX, MAX)),
        ("cumsum", (1, INF, 1, -INF, 1), (1, INF, INF, NAN, NAN)),
        ("cumsum", (TINY, TINY), (TINY, 2 * TINY)),
        ("rms_norm", (MAX, MAX, -MAX, -MAX), (1, 1, -1, -1)),
        ("rms_norm", (0, NAN), (NAN, NAN)),
        ("rms_norm", (INF, 1), (NAN, 0)),
        ("l2_norm", (MAX, 0, 0), (1, 0, 0)),
        ("l2_norm", (INF, 1), (NAN, 0)),
        ("norm", (MAX / 2, -MAX / 2), (1, -1)),
        ("norm", (MAX, MAX, MAX), (0, 0, 0)),
        ("norm", (INF, 1), (NAN, NAN)),
        ("norm", (1, NAN), (NAN, NAN)),
    ],
)
@pytest.mark.parametrize("repeats", [1, 40])
def test_rows_at_the_ends(op, row, expected, repeats):
    """Short rows, one or many; the ones between them stay finite."""
    got = value(getattr(ops, op), np.stack([f32(*row), np.ones(len(row), np.float32)] * repeats))
    np.testing.assert_allclose(got[0::2], [f32(*expected)] * repeats, rtol=1e-6)
    assert np.isfinite(got[1::2]).all()


def test_sums_of_all_at_the_ends():
    same(value(ops.sum, f32(MAX, MAX, -MAX, -MAX)), 0)
    same(value(ops.sum, f32(MAX, MAX)), INF)


def hadamard(n):
    return np.ones((1, 1)) if n == 1 else np.kron([[1, 1], [1, -1]], hadamard(n // 2))


def soft_max(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# In double, where none of these overflows.
ROWS = {
    "sum_rows": lambda x: x.sum(-1, keepdims=True),
    "mean": lambda x: x.mean(-1, keepdims=True),
    "cumsum": lambda x: x.cumsum(-1),
    "argmax": lambda x: x.argmax(-1),
    "rms_norm": lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5),
    "norm": lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    "l2_norm": lambda x: x / np.sqrt((x**2).sum(-1, keepdims=True)),
    "soft_max": soft_max,
    "fwht": lambda x: x @ hadamard(x.shape[-1]) / np.sqrt(x.shape[-1]),
}
SPECIALS = {
    "inf": f32(INF),
    "-inf": f32(-INF),
    "nan": f32(NAN),
    "inf, -inf": f32(INF, -INF),
    "max": f32(MAX),
    "max, max": f32(MAX, MAX),
}


def at_every_place(n, special):
    """Row 2i has the special values from place i on, half a row apart; odd rows have none."""
    x = np.random.default_rng(n).uniform(0.5, 1.5, (2 * n, n)).astype(np.float32)
    for i in range(n):
        x[2 * i, (i + n // 2 * np.arange(special.size)) % n] = special
    return x


LONG = [
    (op, n, special)
    for op in ROWS
    for n in ((32, 256) if op == "fwht" else (33, 70, 300))
    for special in SPECIALS
    if (op, special) != ("fwht", "max, max")  # its sums have room for n |x| only
]


@pytest.mark.parametrize(("op", "n", "special"), LONG)
def test_special_values_at_every_place_of_long_rows(op, n, special):
    """Through the SIMD body of a row, its joints and its tail; odd rows stay finite."""
    x = at_every_place(n, SPECIALS[special])
    with np.errstate(all="ignore"):
        expected = ROWS[op](x.astype(np.float64)).astype(np.float32)
    got = value(getattr(ops, op), x)
    assert np.isfinite(got[1::2]).all()
    cancels = 2e-6 if op == "fwht" else 0  # its sums of terms of both signs are in F32
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=cancels)


@pytest.mark.parametrize("op", [op for op in ROWS if op != "fwht"])
@pytest.mark.parametrize("special", SPECIALS)
def test_special_values_where_long_rows_are_cut(op, special):
    """Rows go in spans of 2048, sums in chunks of 16 spans."""
    places = (0, 2047, 2048, 32767, 32768, 65535, 65536, 69_999)
    x = np.random.default_rng(3).uniform(0.5, 1.5, (len(places), 70_000)).astype(np.float32)
    for row, at in zip(x, places, strict=True):
        row[(at + 35_000 * np.arange(SPECIALS[special].size)) % row.size] = SPECIALS[special]
    with np.errstate(all="ignore"):
        expected = ROWS[op](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(value(getattr(ops, op), x), expected, rtol=2e-6)


@pytest.mark.parametrize("n", [33, 70, 300])
@pytest.mark.parametrize("special", SPECIALS)
def test_special_values_at_every_place_of_a_sum(n, special):
    x = at_every_place(n, SPECIALS[special])[0::2]
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(np.float64).sum(-1).astype(np.float32)
    g = pg.Graph()
    got = g.compile([ops.sum(row) for row in map(g.const, x)], threads=2)()
    np.testing.assert_allclose(got, expected, rtol=2e-6)


@pytest.mark.parametrize("n", [33, 70, 300])
@pytest.mark.parametrize("special", SPECIALS)
def test_masked_special_values_at_every_place(n, special):
    """What lies under a mask of -inf does not count, wherever it is."""
    x = at_every_place(n, SPECIALS[special])
    mask = np.zeros_like(x)
    hidden = ~((x >= 0.5) & (x <= 1.5))
    mask[hidden] = -INF
    expected = soft_max(np.where(hidden, -np.inf, x.astype(np.float64)))
    got = value(ops.soft_max, x, mask)
    assert not got[hidden].any()
    np.testing.assert_allclose(got, expected, rtol=2e-6)


@pytest.mark.parametrize("op", ["sum_rows", "mean", "rms_norm", "norm", "l2_norm"])
def test_long_rows_near_the_largest_float(op):
    x = np.full((1, 1000), MAX / 4, np.float32)
    x[0, ::2] *= -1
    x[0, 0] = MAX / 2
    wide = x.astype(np.float64)
    mean = wide.mean()
    expected = {
        "sum_rows": [[wide.sum()]],
        "mean": [[mean]],
        "rms_norm": wide / np.sqrt((wide**2).mean()),
        "norm": (wide - mean) / np.sqrt(((wide - mean) ** 2).mean()),
        "l2_norm": wide / np.sqrt((wide**2).sum()),
    }[op]
    np.testing.assert_allclose(value(getattr(ops, op), x), expected, rtol=1e-6, atol=1e-9)


# ---- positions ----

POSITIONS = [0, 1, 2**20 + 7, 2**31 - 1, -(2**31), 2**40 + 3, 2**53, -(2**53)]


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("pos", POSITIONS)
def test_rope_of_huge_positions(mode, pos):
    """Angles are in double: up to 2^53 a position is exact, and so is the first pair's angle; the
    others' have what their frequencies round to, a few 2^-53 of themselves."""
    d = 16
    x = np.ones((1, 1, d), np.float32)
    g = pg.Graph()
    got = run(ops.rope(g.const(x), np.array([pos]), mode=mode)).numpy()[0, 0]
    angle = pos * 10000.0 ** (-2 * np.arange(d // 2) / d)
    off = np.abs(angle) * 2.0**-51
    off[0] = 0
    c, s = np.cos(angle) - np.sin(angle), np.sin(angle) + np.cos(angle)
    pairs = got.reshape(2, -1) if mode == "neox" else got.reshape(-1, 2).T
    assert (np.abs(pairs - [c, s]) <= 1e-6 + off).all()


@pytest.mark.parametrize("pos", [2**62, 2**63 - 1, -(2**63)])
def test_rope_beyond_double_stays_a_rotation(pos):
    g = pg.Graph()
    got = run(ops.rope(g.const(np.ones((1, 1, 8), np.float32)), np.array([pos]))).numpy()[0, 0]
    np.testing.assert_allclose(got[0::2] ** 2 + got[1::2] ** 2, 2.0, rtol=1e-6)


# ---- elementwise ----

ENDS = f32(-INF, -MAX, -1, -TINY, -0.0, 0.0, TINY, 1, MAX, INF, NAN)
FUNCTIONS = {
    "abs": np.abs(ENDS),
    "neg": -ENDS,
    "sqr": f32(INF, INF, 1, 0, 0, 0, 0, 1, INF, INF, NAN),
    "sqrt": f32(NAN, NAN, NAN, NAN, -0.0, 0, np.sqrt(TINY), 1, np.sqrt(MAX), INF, NAN),
    "exp": f32(0, 0, np.exp(-1), 1, 1, 1, 1, np.e, INF, INF, NAN),
    "log": f32(NAN, NAN, NAN, NAN, -INF, -INF, np.log(1e-40), 0, 88.722839, INF, NAN),
    "relu": f32(0, 0, 0, 0, 0, 0, TINY, 1, MAX, INF, NAN),
    "step": f32(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0),
    "tanh": f32(-1, -1, np.tanh(-1), -TINY, -0.0, 0, TINY, np.tanh(1), 1, 1, NAN),
    "sigmoid": f32(0, 0, 0.26894142, 0.5, 0.5, 0.5, 0.5, 0.7310586, 1, 1, NAN),
    "silu": f32(0, 0, -0.26894142, -TINY / 2, 0, 0, TINY / 2, 0.7310586, MAX, INF, NAN),
    "gelu_erf": f32(0, 0, -0.15865525, -TINY / 2, 0, 0, TINY / 2, 0.8413447, MAX, INF, NAN),
    "softplus": f32(0, 0, 0.31326169, *[np.log(2)] * 4, 1.3132617, MAX, INF, NAN),
    "hardsigmoid": f32(0, 0, 1 / 3, 0.5, 0.5, 0.5, 0.5, 2 / 3, 1, 1, NAN),
}


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("repeats", [1, 7])
def test_functions_at_the_ends(op, repeats):
    got = value(getattr(ops, op), np.tile(ENDS, repeats))
    np.testing.assert_allclose(got, np.tile(FUNCTIONS[op], repeats), rtol=1e-6, atol=1e-45)


@pytest.mark.parametrize("op", ["sin", "cos"])
@pytest.mark.parametrize("repeats", [1, 7])
def test_angles_at_the_ends(op, repeats):
    for got in value(getattr(ops, op), np.tile(ENDS, repeats)).reshape(repeats, -1):
        assert np.isnan(got[[0, 9, 10]]).all()
        assert (np.abs(got[1:9]) <= 1).all()
        exact = getattr(np, op)(ENDS[2:8].astype(np.float64))
        np.testing.assert_allclose(got[2:8], exact, rtol=1e-6)
