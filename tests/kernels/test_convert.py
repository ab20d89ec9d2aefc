"""to_f32_X and from_f32_X: bit for bit the oracle, in every instruction set."""

import numpy as np
import pytest
from kernels.kernel import (
    BLOCKS,
    DTYPES,
    ENCODED,
    FIXED,
    ISAS,
    SCALAR,
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

from oracles import formats

SLOTS = {f"to_f32_{name}" for name in DTYPES} | {f"from_f32_{name}" for name in ENCODED}

every_isa = pytest.mark.parametrize("isa", ISAS)


def decode(isa, dtype, codes, n=None):
    elements, size = DTYPES[dtype]
    n = codes.nbytes // size * elements if n is None else n
    y = np.full(n, 7, dtype=np.float32)
    kernel(isa, f"to_f32_{dtype}")(codes, y, n)
    return y


def encode(isa, dtype, x):
    y = np.zeros(row_bytes(dtype, len(x)), dtype=np.uint8).view(words(dtype))
    kernel(isa, f"from_f32_{dtype}")(x, y, len(x))
    return y


def beside(points):
    """Points, their float32 neighbours on both sides, and the negatives of all."""
    points = np.asarray(points, dtype=np.float32)
    up, down = np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))
    all_points = np.concatenate([points, up, down])
    return np.concatenate([all_points, -all_points])


def special():
    """Infinities, zeros, denormals, the largest, quiet and signalling NaNs of both signs."""
    bits = [0x7F800000, 0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF]
    bits += [0x7FC00000, 0x7FA00000, 0x7F800001, 0x7FFFFFFF, 0x7FC12345]
    bits = np.array(bits, dtype=np.uint32)
    return np.concatenate([bits, bits | np.uint32(0x80000000)]).view(np.float32)


def all_codes(dtype):
    """Every code of a format of one or two bytes."""
    word = words(dtype)
    return np.arange(256 ** word().nbytes, dtype=np.uint32).astype(word)


def boundaries(dtype):
    """Where the code changes: midpoints between neighbouring finite values, and past the last."""
    codes = all_codes(dtype)
    with np.errstate(invalid="ignore"):
        values = decoded(dtype, codes[: len(codes) // 2])
    values = values[np.isfinite(values)]
    assert (np.diff(values) > 0).all()
    largest = values[-1] + (values[-1] - values[-2]) / 2
    middle = np.append((values[1:] + values[:-1]) / 2, largest)
    return np.concatenate([values, middle]).astype(np.float32)


def random_floats(n=1_000_000, seed=1):
    """Random bit patterns: every exponent, NaNs of all kinds."""
    return np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32).view(np.float32)


@every_isa
def test_all_e4m3_codes(isa):
    codes = np.arange(256, dtype=np.uint8)
    y = decode(isa, "f8_e4m3", codes)
    expected = formats.E4M3_VALUES.astype(np.float32)
    assert np.array_equal(y, expected, equal_nan=True)
    assert np.array_equal(np.signbit(y), codes >= 0x80)
    assert y.view(np.uint32)[0x7F] == 0x7FC00000
    assert y.view(np.uint32)[0xFF] == 0xFFC00000


@every_isa
@pytest.mark.parametrize("dtype", SCALAR)
def test_all_codes(isa, dtype):
    codes = all_codes(dtype)
    y = decode(isa, dtype, codes)
    with np.errstate(invalid="ignore"):
        expected = decoded(dtype, codes).astype(np.float32)
    assert np.array_equal(y, expected, equal_nan=True)
    assert np.array_equal(np.signbit(y), codes > codes.max() // 2)
    back = encode(isa, dtype, y)
    assert same_bits(back, encoded(dtype, y))
    assert np.array_equal(back[~np.isnan(y)], codes[~np.isnan(y)])


@every_isa
@pytest.mark.parametrize(("dtype", "quiet"), [("f16", 0x0200), ("bf16", 0x0040), ("f8_e4m3", 0)])
def test_nan_keeps_its_payload(isa, dtype, quiet):
    codes = all_codes(dtype)
    y = decode(isa, dtype, codes)
    assert same_bits(
        encode(isa, dtype, y), np.where(np.isnan(y), codes | codes.dtype.type(quiet), codes)
    )


def test_bf16_decode_moves_bits():
    codes = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    for isa in ISAS:
        assert same_bits(decode(isa, "bf16", codes).view(np.uint32), codes.astype(np.uint32) << 16)


@every_isa
@pytest.mark.parametrize("dtype", SCALAR)
def test_encode_at_every_boundary(isa, dtype):
    x = np.concatenate([beside(boundaries(dtype)), special()])
    assert same_bits(encode(isa, dtype, x), encoded(dtype, x))


@every_isa
def test_e4m3_reported_faults(isa):
    # ties to even (ml_dtypes#221); no rounding through f16 (Microfloats.jl#25); overflow
    x = np.array([4.25, 4.75, 17, 19, 21, 1.31640625], dtype=np.float32)
    values = [4, 5, 16, 20, 20, 1.375]
    assert decode(isa, "f8_e4m3", encode(isa, "f8_e4m3", x)).tolist() == values
    bits = np.array([0x3F880001, 0x41880001, 0x3A800001, 0x3A800000], dtype=np.uint32)
    assert encode(isa, "f8_e4m3", bits.view(np.float32)).tolist() == [0x39, 0x59, 0x01, 0x00]
    big = np.array([448, 464, 465, 1000, 3e10, np.inf, -1000], dtype=np.float32)
    assert encode(isa, "f8_e4m3", big).tolist() == [0x7E] * 6 + [0xFE]


@every_isa
@pytest.mark.parametrize("dtype", SCALAR)
def test_encode_random_bits(isa, dtype):
    x = random_floats()
    assert same_bits(encode(isa, dtype, x), encoded(dtype, x))


@every_isa
@pytest.mark.parametrize("dtype", SCALAR)
def test_ftz_and_daz_change_nothing(isa, dtype):
    x = np.concatenate([special(), beside(boundaries(dtype)), random_floats(100_000)])
    codes = encode(isa, dtype, x)
    values = decode(isa, dtype, codes)
    with denormals_flushed():
        flushed_codes = encode(isa, dtype, x)
        flushed_values = decode(isa, dtype, codes)
    assert same_bits(flushed_codes, codes)
    assert same_bits(flushed_values, values)


@every_isa
@pytest.mark.parametrize("slot", ["to_f32_f32", "from_f32_f32"])
def test_f32_moves_bits(isa, slot):
    x = np.concatenate([special(), random_floats(1003)])
    y = np.zeros_like(x)
    kernel(isa, slot)(x, y, len(x))
    assert same_bits(y, x)
    kernel(isa, slot)(y, y, len(y))
    assert same_bits(y, x)


# ---- lengths, alignment, borders -------------------------------------------------------------


def encode_in_place(isa, dtype, x, codes):
    """from_f32 between guard pages and between sentinels gives the codes."""
    n, count, step = len(x), codes.nbytes, words(dtype)().nbytes
    source, target = guarded(0).at_end(x), guarded(1).at_end(np.zeros_like(codes))
    kernel(isa, f"from_f32_{dtype}")(source, target, n)
    assert same_bits(target, codes)
    room = np.full(count + 64, 0x7F, np.uint8)
    first = 16 + n % 5 * step
    kernel(isa, f"from_f32_{dtype}")(moved(x, n % 7 * 4), room[first:], n)
    assert same_bits(room[first : first + count], codes.view(np.uint8).reshape(-1))
    assert (np.delete(room, slice(first, first + count)) == 0x7F).all()


@every_isa
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_length(isa, dtype):
    elements = DTYPES[dtype][0]
    x = np.random.default_rng(2).standard_normal(1024).astype(np.float32)
    step = words(dtype)().nbytes
    for n in range(0, 260 if elements == 1 else max(9 * 32, 4 * elements + 1), elements):
        codes = encoded(dtype, x[:n])
        if dtype in ENCODED:
            encode_in_place(isa, dtype, x[:n], codes)
        whole = decode("generic", dtype, codes)
        source, values = guarded(0).at_end(codes), guarded(1).at_end(np.zeros(n, np.float32))
        kernel(isa, f"to_f32_{dtype}")(source, values, n)
        assert same_bits(values, whole)
        values = np.full(n + 16, 9, np.float32)
        kernel(isa, f"to_f32_{dtype}")(moved(codes, n % 5 * step), values[3:], n)
        assert same_bits(values[3 : n + 3], whole)
        assert (values[:3] == 9).all()
        assert (values[n + 3 :] == 9).all()


# ---- blocks ----------------------------------------------------------------------------------


def block_samples():
    """Finite blocks: all magnitudes, constants, zeros of both signs, ties, one outlier."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((400, 32)) * 10.0 ** rng.uniform(-6, 6, (400, 1))
    whole = rng.integers(-127, 128, (200, 32)) / 2.0
    whole[:, 0] = 127  # d = 1: products with halves are ties
    shifted = rng.standard_normal((100, 32)) + 50
    constant = np.repeat(rng.standard_normal((20, 1)), 32, axis=1)
    zeros = np.where(rng.integers(0, 2, (20, 32)) > 0, 0.0, -0.0)
    half_zero = np.maximum(rng.standard_normal((50, 32)), rng.choice([0.0, -0.0], (50, 32)))
    outlier = np.where(np.arange(32) == 5, 100.0, rng.standard_normal((20, 32)))
    equal = np.where(rng.integers(0, 2, (50, 32)) > 0, 1.5, -1.5)  # extremes of both signs
    huge = rng.uniform(-1, 1, (20, 32)) * 1e38
    parts = [normal, whole, shifted, constant, zeros, half_zero, outlier, equal, huge]
    return np.concatenate(parts).astype(np.float32)


def odd_blocks():
    """NaN or infinity at every place, denormal blocks, and differences that overflow."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((32 * 4, 32)).astype(np.float32)
    for i, value in enumerate([np.nan, -np.nan, np.inf, -np.inf]):
        for j in range(32):
            x[i * 32 + j, j] = value
    tiny = (rng.standard_normal((50, 32)) * 10.0 ** rng.uniform(-45, -36, (50, 1))).astype("f4")
    wide = (rng.choice([-3e38, 3e38], (10, 32))).astype(np.float32)
    return np.concatenate([x, tiny, wide])


ENCODED_BLOCKS = [name for name in BLOCKS if name not in FIXED]


@every_isa
@pytest.mark.parametrize("dtype", ENCODED_BLOCKS)
def test_block_encode_is_the_reference_quantisation(isa, dtype):
    elements, size = DTYPES[dtype]
    x = block_samples().reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = encoded(dtype, x)
    codes = encode(isa, dtype, x).reshape(-1, size)
    wrong = np.flatnonzero((codes != expected.reshape(codes.shape)).any(axis=1))
    assert wrong.size == 0, (wrong[:5], x.reshape(-1, elements)[wrong[:1]])


@every_isa
@pytest.mark.parametrize("dtype", ENCODED_BLOCKS)
def test_block_encode_of_what_is_not_finite(isa, dtype):
    elements, size = DTYPES[dtype]
    rows = odd_blocks()
    rest = np.tile(rows[-1], (len(rows), elements // 32 - 1))  # what shares the block is finite
    x = np.concatenate([rows, rest], axis=1).reshape(-1)
    codes = encode(isa, dtype, x)
    assert same_bits(codes, encode("generic", dtype, x))
    values = decode(isa, dtype, codes).reshape(-1, elements)[:128]
    raw = codes.reshape(-1, size)[:128].copy()
    if dtype == "mxfp4":  # it holds no NaN
        assert (values == np.inf).all()
        assert (raw == [255, *[0x77] * 16]).all()
        return
    assert np.isnan(values).all()
    for at in halves(dtype):
        assert (raw[:, at : at + 2] == [0, 0x7E]).all()
        raw[:, at + 1] = 0
    assert (raw == 0).all()


def random_blocks(dtype, n, finite):
    """Random bytes; halves of the first half of the blocks are below 1 or of any finite size."""
    raw = np.random.default_rng(5).integers(0, 256, (n, DTYPES[dtype][1]), dtype=np.uint8)
    for at in halves(dtype) if finite else ():
        high = raw[:, at + 1]
        high &= 0xBF  # no infinity, no NaN: exponents below 16 (and all subnormals)
        high[n // 2 :] |= 0x40
        high[n // 2 :] &= 0xFB
        raw[:3, at : at + 2] = [[0, 0], [0, 0x80], [1, 0]]
    return raw


@every_isa
@pytest.mark.parametrize(
    ("dtype", "most", "rest"), [("q8_0", 127, 0x81), ("q4_0", 0, 0), ("q4_1", 15, 0)]
)
def test_block_encode_where_the_reciprocal_is_infinite(isa, dtype, most, rest):
    # 0 * inf is NaN and becomes the lowest quant
    x = np.zeros(32, np.float32)
    x[3] = 1e-42
    quants = np.full(32 if dtype == "q8_0" else 16, rest, np.uint8)
    quants[3] = most
    codes = encode(isa, dtype, x)
    assert (codes[-len(quants) :] == quants).all()
    assert (decode(isa, dtype, codes) == 0).all()


@every_isa
@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_decode(isa, dtype):
    raw = random_blocks(dtype, 3000, finite=True)
    with np.errstate(over="ignore"):  # mxfp4 reaches past the largest float
        expected = decoded(dtype, raw.reshape(-1)).astype(np.float32)
    y = decode(isa, dtype, raw)
    assert np.array_equal(y, expected)
    assert np.array_equal(np.signbit(y), np.signbit(expected))
    assert same_bits(y, decode("generic", dtype, raw))
    with denormals_flushed():
        flushed = decode(isa, dtype, raw)
    assert same_bits(flushed, y)


@every_isa
@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_decode_of_any_bytes(isa, dtype):
    raw = random_blocks(dtype, 2000, finite=False)
    y, plain = decode(isa, dtype, raw), decode("generic", dtype, raw)
    assert np.array_equal(y, plain, equal_nan=True)
    assert np.isnan(y).any() == bool(halves(dtype))


@every_isa
def test_mxfp4_at_every_exponent(isa):
    raw = np.zeros((256, 17), np.uint8)
    raw[:, 0] = np.arange(256)
    raw[:, 1:] = np.arange(16) * 17
    codes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # E2M1
    units = 2.0 ** (np.arange(256.0) - 127)
    with np.errstate(over="ignore"):
        half = (units[:, None] * np.concatenate([codes, -codes])).astype(np.float32)
    assert np.array_equal(decode(isa, "mxfp4", raw).reshape(256, 2, 16), np.stack([half] * 2, 1))
    # what is a value of the format stays one, from the smallest exponent on
    x = half[:, [*range(8), 15, 14, 13, 12, 11, 10, 9, 8] * 2]
    finite = np.isfinite(x).all(axis=1)
    again = decode(isa, "mxfp4", encode(isa, "mxfp4", x[finite].reshape(-1)))
    assert np.array_equal(again, x[finite].reshape(-1))
