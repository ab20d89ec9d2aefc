"""dot_X and mv_X: within the error class of kernels.h, at every length, start and border
(B1, B2, B3)."""

import numpy as np
import pytest
from kernels.kernel import (
    BLOCKS,
    DTYPES,
    ISAS,
    decoded,
    denormals_flushed,
    encoded,
    guarded,
    halves,
    kernel,
    moved,
    row_bytes,
    same_bits,
    words,
)

SLOTS = {f"{way}_{name}" for way in ("dot", "mv") for name in DTYPES}

every_isa = pytest.mark.parametrize("isa", ISAS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def bound(isa, n, w, x):
    """n_eff * 2^-24 * sum |w x| of kernels.h."""
    n_eff = n if isa == "generic" else n / 8 + 8
    return n_eff * 2.0**-24 * np.sum(np.abs(w * x), axis=-1)


def lengths(dtype):
    step = DTYPES[dtype][0]
    return range(0, 258 if step == 1 else max(257, 4 * step + 1), step)


def whole(dtype, n):
    """The first number of whole blocks from n on."""
    step = DTYPES[dtype][0]
    return -(-n // step) * step


def sample(dtype, n, rows=1, seed=0):
    """Codes (rows, bytes as words), their float64 values, and x."""
    rng = np.random.default_rng(seed + 1000 * n)
    codes = encoded(dtype, rng.standard_normal((rows, n)).astype(np.float32))
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 3, n)).astype(np.float32)
    return codes, decoded(dtype, codes), x


@every_isa
@every_dtype
def test_every_length_and_border(isa, dtype):
    dot = kernel(isa, f"dot_{dtype}")
    step = words(dtype)().nbytes
    for n in lengths(dtype):
        codes, w, x = sample(dtype, n)
        exact = np.sum(w[0] * x)
        limit = bound(isa, n, w[0], x)
        at_end = dot(n, guarded(0).at_end(codes[0]), guarded(1).at_end(x))
        at_start = dot(n, guarded(0).at_start(codes[0]), guarded(1).at_start(x))
        assert abs(at_end - exact) <= limit, n
        assert at_start == at_end
        for by in range(1, 5):  # poison after the end is NaN in every format
            shifted = dot(n, moved(codes[0], by * step), moved(x, by * 4, poison=0xFF))
            assert shifted == at_end
        if n == 0:
            assert at_end == 0
            assert not np.signbit(at_end)


@every_isa
@every_dtype
@pytest.mark.parametrize("n", [576, 1536, 4096])
def test_long_rows(isa, dtype, n):
    n = whole(dtype, n)
    codes, w, x = sample(dtype, n, rows=6)
    y = np.zeros(6, np.float32)
    kernel(isa, f"mv_{dtype}")(n, 6, codes, row_bytes(dtype, n), x, y)
    assert (np.abs(y - w @ x.astype(np.float64)) <= bound(isa, n, w, x)).all()


@every_isa
@every_dtype
def test_each_weight_alone(isa, dtype):
    # x = 0 but at one place: the sum is that weight; what cancels elsewhere must leave no trace
    n = whole(dtype, 160)
    rng = np.random.default_rng(7)
    blocks = rng.standard_normal((n // 32, 32)) * 10.0 ** rng.uniform(-2, 2, (n // 32, 1))
    blocks[1] += 30  # all far from zero: q4_1 has m >> d
    blocks[2] = np.abs(blocks[2])
    blocks[2, 3] = 1e-4  # m << d
    codes = encoded(dtype, blocks.reshape(1, -1).astype(np.float32))
    w = decoded(dtype, codes)[0].astype(np.float32)
    dot = kernel(isa, f"dot_{dtype}")
    for i in range(n):
        x = np.zeros(n, np.float32)
        x[i] = 1
        assert dot(n, codes, x) == w[i], i


@every_isa
def test_all_e4m3_codes(isa):
    codes = np.arange(256, dtype=np.uint8)
    values = decoded("f8_e4m3", codes)
    dot = kernel(isa, "dot_f8_e4m3")
    for n in (1, 9, 33):
        for code in range(256):
            w = np.zeros(n, np.uint8)
            w[n // 2] = code
            with denormals_flushed():  # subnormal codes are no denormals on the way
                y = dot(n, w, np.ones(n, np.float32))
            assert y == values[code] or np.isnan(values[code])
            assert np.isnan(y) == np.isnan(values[code])


@every_isa
@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_e4m3_nan_in_every_position(isa, code):
    dot, mv = kernel(isa, "dot_f8_e4m3"), kernel(isa, "mv_f8_e4m3")
    for n in (1, 2, 7, 8, 9, 31, 32, 33, 64, 75, 257):
        codes, _, x = sample("f8_e4m3", n, rows=7)
        clean = np.zeros(7, np.float32)
        mv(n, 7, codes, n, x, clean)
        assert np.isfinite(clean).all()
        for i in range(n):
            row = i % 7
            w = codes.copy()
            w[row, i] = code
            y = np.zeros(7, np.float32)
            mv(n, 7, w, n, x, y)
            assert np.isnan(y[row])
            assert np.isnan(dot(n, w[row], x))
            assert same_bits(np.delete(y, row), np.delete(clean, row))


@every_isa
@every_dtype
def test_nan_and_infinity_reach_the_result(isa, dtype):
    n = 3 * max(DTYPES[dtype][0], 32)
    codes, w, x = sample(dtype, n)
    dot = kernel(isa, f"dot_{dtype}")
    w[w == 0] = 1
    for i in (0, 31, 50, 95):
        for value in (np.nan, np.inf):
            bad = x.copy()
            bad[i] = value
            assert not np.isfinite(dot(n, codes, bad))
    if dtype in BLOCKS:
        for at in halves(dtype):
            raw = codes.reshape(3, -1).copy()
            raw[1, at : at + 2] = [0, 0x7E]  # NaN
            assert np.isnan(dot(n, raw, x))
    else:
        bad = codes.copy()
        bad[0, 50] = encoded(dtype, np.float32([np.nan]))[0]
        assert np.isnan(dot(n, bad, x))


@every_isa
@every_dtype
def test_mv_is_dot_row_by_row(isa, dtype):
    dot, mv = kernel(isa, f"dot_{dtype}"), kernel(isa, f"mv_{dtype}")
    step = DTYPES[dtype][0]
    sizes = (
        (0, step, 2 * step, 7 * step)
        if dtype in BLOCKS
        else (0, 1, 7, 8, 15, 16, 17, 24, 33, 63, 100)
    )
    for n in sizes:
        for rows in range(10):
            codes, _, x = sample(dtype, n, rows=rows)
            count = row_bytes(dtype, n)
            raw = codes.reshape(-1).view(np.uint8).reshape(rows, count)
            for extra in (0, 12):  # rows apart: the bytes between them are NaN
                stride = count + extra
                room = np.full(rows * stride, 0x7F, np.uint8)
                for r in range(rows):
                    room[r * stride : r * stride + count] = raw[r]
                last = rows * stride - extra if rows else 0
                w = guarded(0).at_end(room[:last])
                y = np.full(rows + 4, 5, np.float32)
                mv(n, rows, w, stride, guarded(1).at_end(x), y)
                for r in range(rows):
                    single = dot(n, w[r * stride : r * stride + count], x)
                    assert y[r] == np.float32(single), (n, rows, r)
                assert (y[rows:] == 5).all()


@every_isa
@every_dtype
def test_sums_in_f32_of_f32_activations(isa, dtype):
    # activations keep their 24 bits: any rounding to 8 or 16 bits makes 1 of 1 + 2^-23
    n = whole(dtype, 64)
    codes = encoded(dtype, np.ones((1, n), np.float32))
    w = decoded(dtype, codes)[0]
    x = np.zeros(n, np.float32)
    x[3], x[35] = 1 + 2.0**-23, -1
    exact = np.sum(w * x)
    assert exact > 0
    y = kernel(isa, f"dot_{dtype}")(n, codes, x)
    # where a weight is not 1 but near, its product with x[3] rounds by up to half of what is left
    assert y == pytest.approx(exact, rel=1e-3 if w[3] == 1 or dtype == "q8_0" else 0.51)


@every_isa
@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e-20, 1e-12, 1e18, 3e20, 1e30, 1e35])
@pytest.mark.parametrize("n", [40, 100, 5000])
def test_e4m3_with_tiny_and_huge_activations(isa, size, n):
    codes, w, x = sample("f8_e4m3", n, rows=10)
    x = (x / np.abs(x).max() * size).astype(np.float32)
    y = np.zeros(10, np.float32)
    kernel(isa, "mv_f8_e4m3")(n, 10, codes, n, x, y)
    denormal = n * 2.0**-149 * 256  # what products below the smallest normal may lose
    assert (np.abs(y - w @ x.astype(np.float64)) <= bound(isa, n, w, x) + denormal).all()
    for r in range(10):
        assert kernel(isa, "dot_f8_e4m3")(n, codes[r], x) == y[r]


@every_isa
@pytest.mark.parametrize("bits", [0x8040, 0x8000, 0x0040])
def test_e4m3_under_ftz_and_daz(isa, bits):
    # subnormal codes beside normal ones, in rows long enough for every path
    rng = np.random.default_rng(9)
    codes = rng.choice(np.array([1, 3, 7, 0x81, 0x87, 8, 0x30], np.uint8), (10, 300))
    w = decoded("f8_e4m3", codes)
    x = rng.standard_normal(300).astype(np.float32)
    y = np.zeros(10, np.float32)
    with denormals_flushed(bits):
        kernel(isa, "mv_f8_e4m3")(300, 10, codes, 300, x, y)
    assert (np.abs(y - w @ x.astype(np.float64)) <= bound(isa, 300, w, x)).all()
    kernel(isa, "mv_f8_e4m3")(300, 10, codes, 300, x, y)
    assert (np.abs(y - w @ x.astype(np.float64)) <= bound(isa, 300, w, x)).all()


@every_isa
def test_e4m3_nan_in_long_rows(isa):
    n, rows = 5000, 10
    codes, _, x = sample("f8_e4m3", n, rows=rows)
    clean, y = np.zeros(rows, np.float32), np.full(rows + 4, 5, np.float32)
    kernel(isa, "mv_f8_e4m3")(n, rows, codes, n, x, clean)
    for row in range(rows):
        w = codes.copy()
        w[row, 17 * row] = 0x7F
        kernel(isa, "mv_f8_e4m3")(n, rows, guarded(0, 16).at_end(w), n, x, y)
        assert np.isnan(y[row])
        assert same_bits(np.delete(y[:rows], row), np.delete(clean, row))
        assert (y[rows:] == 5).all()
