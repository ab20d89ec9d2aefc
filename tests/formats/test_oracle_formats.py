"""The format oracles against literals, exact fractions, and the gguf and ml_dtypes packages."""

from fractions import Fraction

import gguf
import ml_dtypes
import numpy as np
import pytest

from oracles import copy, formats
from oracles.nmse import nmse, ulp_diff_f32

F32 = np.float32
BLOCKS = {
    "q8_0": (formats.q8_0_encode, formats.q8_0_decode, gguf.GGMLQuantizationType.Q8_0),
    "q4_0": (formats.q4_0_encode, formats.q4_0_decode, gguf.GGMLQuantizationType.Q4_0),
    "q4_1": (formats.q4_1_encode, formats.q4_1_decode, gguf.GGMLQuantizationType.Q4_1),
}


def from_bits(*bits):
    return np.array(bits, dtype=np.uint32).view(F32)


def same_float(a, b):
    """Equal values, signs of zeros and of NaNs included."""
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


# ---- E4M3 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x00, 0.0),
        (0x01, 0.001953125),
        (0x07, 0.013671875),
        (0x08, 0.015625),
        (0x38, 1.0),
        (0x77, 240.0),
        (0x78, 256.0),
        (0x7E, 448.0),
        (0xB8, -1.0),
        (0xFE, -448.0),
    ],
)
def test_e4m3_decode_literals(code, value):
    assert formats.e4m3_decode(code) == value


def test_e4m3_decode_zero_sign_and_nan():
    same_float(formats.e4m3_decode([0x80]), [-0.0])
    nan = np.isnan(formats.E4M3_VALUES)
    assert np.flatnonzero(nan).tolist() == [0x7F, 0xFF]
    assert np.signbit(formats.E4M3_VALUES[[0x7F, 0xFF]]).tolist() == [False, True]


def test_e4m3_decode_agrees_with_ml_dtypes():
    codes = np.arange(256, dtype=np.uint8)
    theirs = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    same_float(formats.e4m3_decode(codes)[~np.isnan(theirs)], theirs[~np.isnan(theirs)])
    assert np.isnan(theirs).sum() == 2


def test_e4m3_every_code_survives_a_round_trip():
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(formats.e4m3_encode(formats.e4m3_decode(codes)), codes)


def test_e4m3_ties_go_to_even():
    x = np.array([4.25, 4.75, 17, 19, 21], dtype=F32)
    assert formats.e4m3_decode(formats.e4m3_encode(x)).tolist() == [4.0, 5.0, 16.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("bits", "code"),
    [
        (int(F32(1.31640625).view(np.uint32)), 0x3B),
        (0x3F880001, 0x39),
        (0x41880001, 0x59),
        (0x3A800001, 0x01),
        (0x3A800000, 0x00),
    ],
)
def test_e4m3_rounds_once(bits, code):
    x = from_bits(bits)
    assert formats.e4m3_encode(x).tolist() == [code]
    assert formats.e4m3_encode(-x).tolist() == [code | 0x80]
    assert formats.e4m3_encode(x.astype(np.float64)).tolist() == [code]


def test_e4m3_rounds_once_from_float64():
    just_above = np.nextafter(17.0, 18.0)  # float32 would call it a tie
    assert formats.e4m3_encode(just_above) == 0x59


def test_e4m3_saturates_and_keeps_signs():
    x = np.array([448, 464, np.nextafter(F32(464), F32(465)), 465, 1000, 3e10, np.inf], dtype=F32)
    assert formats.e4m3_encode(x).tolist() == [0x7E] * 7
    assert formats.e4m3_encode(-x).tolist() == [0xFE] * 7
    assert formats.e4m3_encode(np.array([0.0, -0.0], dtype=F32)).tolist() == [0x00, 0x80]
    nans = from_bits(0x7FC00000, 0xFFC00000, 0x7FA00000, 0xFFA00000)
    assert formats.e4m3_encode(nans).tolist() == [0x7F, 0xFF, 0x7F, 0xFF]


def test_e4m3_boundaries_by_exact_fractions():
    points = formats.e4m3_boundaries()
    assert points.dtype == F32
    assert len(points) == 252
    assert (np.diff(points) > 0).all()
    values = [Fraction(float(v)) for v in formats.E4M3_VALUES[:0x7F]]
    upper = points[points > 0]
    x = np.concatenate([np.nextafter(upper, F32(0)), upper, np.nextafter(upper, F32(np.inf))])
    for number, code in zip(x, formats.e4m3_encode(x), strict=True):
        distance = [abs(Fraction(float(number)) - v) for v in values]
        nearest = [c for c, d in enumerate(distance) if d == min(distance)]
        assert code == (nearest[0] if len(nearest) == 1 else next(c for c in nearest if c % 2 == 0))
    np.testing.assert_array_equal(points[points < 0], -upper[::-1])


def test_e4m3_encode_agrees_with_ml_dtypes_below_saturation():
    rng = np.random.default_rng(1)
    spread = np.arange(0, 2**32, 2**11, dtype=np.uint64).astype(np.uint32).view(F32)
    spread = spread[np.abs(spread) <= 448]
    edges = formats.e4m3_boundaries()
    x = np.concatenate([spread, edges, np.nextafter(edges, F32(0)), rng.normal(0, 50, 99999)])
    x = x[np.abs(x) <= 448].astype(F32)
    theirs = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(formats.e4m3_encode(x), theirs)


def test_e4m3_round_divides_then_multiplies():
    assert formats.e4m3_encode(F32(1000) / F32(1000 / 448)) == 0x7E
    assert formats.e4m3_round(1000.0, 1000.0 / 448) == 1000.0
    assert formats.e4m3_round(1000.0) == 448.0


# ---- F16 and BF16 ---------------------------------------------------------------------------


def float32_samples():
    """All exponents and signs, halves of every F16 and BF16 step, and their neighbours."""
    rng = np.random.default_rng(2)
    coarse = np.arange(0, 2**32, 2**12, dtype=np.uint64).astype(np.uint32)
    with np.errstate(over="ignore"):
        beside = np.concatenate([coarse, coarse + np.uint32(1), coarse - np.uint32(1)])
    random = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    subnormal_f16 = (np.arange(1, 4096) * 2.0**-26).astype(F32).view(np.uint32)
    x = np.concatenate([beside, random, subnormal_f16]).view(F32)
    return x[~np.isnan(x)]


def test_f16_decodes_all_halves():
    bits = np.arange(2**16, dtype=np.uint16)
    ours, theirs = formats.f16_decode(bits), bits.view(np.float16).astype(np.float64)
    same_float(ours, theirs)


def test_f16_encode_agrees_with_numpy():
    x = float32_samples()
    with np.errstate(over="ignore"):
        theirs = x.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(formats.f16_encode(x), theirs)


def test_f16_encode_rounds_float64_once():
    x = 1.0 + 2.0**-11 + 2.0**-40  # just above a tie; through float32 it would be the tie
    assert formats.f16_encode(x) == 0x3C01
    assert formats.f16_encode(F32(x)) == 0x3C00


def test_f16_literals():
    x = np.array([65504, 65519.996, 65520, np.inf, -np.inf, 2.0**-24, 2.0**-25, -0.0], dtype=F32)
    expected = [0x7BFF, 0x7BFF, 0x7C00, 0x7C00, 0xFC00, 0x0001, 0x0000, 0x8000]
    assert formats.f16_encode(x).tolist() == expected


def test_bf16_decodes_all_codes():
    bits = np.arange(2**16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        theirs = (bits.astype(np.uint32) << 16).view(F32).astype(np.float64)
    same_float(formats.bf16_decode(bits), theirs)


def test_bf16_encode_agrees_with_ml_dtypes():
    x = float32_samples()
    theirs = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(formats.bf16_encode(x), theirs)


def test_nan_stays_nan_with_its_sign():
    nans = from_bits(0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001)
    for encode, decode in (
        (formats.f16_encode, formats.f16_decode),
        (formats.bf16_encode, formats.bf16_decode),
    ):
        back = decode(encode(nans))
        assert np.isnan(back).all()
        assert np.signbit(back).tolist() == [False, True, False, True]
    assert (formats.bf16_encode(nans) & 0x40 != 0).all()


# ---- blocks ---------------------------------------------------------------------------------


def block_rows():
    """Rows of 4 blocks: random at several sizes, zeros, constants, spikes, exact halves."""
    rng = np.random.default_rng(3)
    sizes = 10.0 ** rng.integers(-4, 4, (500, 1))
    rows = [rng.normal(0, 1, (500, 128)) * sizes, rng.uniform(-1, 1, (500, 128))]
    special = np.zeros((7, 128))
    special[1, 32:64] = 1.0
    special[2] = -2.5
    special[3, ::32] = 100.0
    special[4, ::32] = -100.0
    special[5] = np.tile(np.arange(32) - 15.5, 4)  # ties between magnitudes of both signs
    special[6] = np.tile(np.concatenate([[127.0], np.arange(31) / 2]), 4)  # q8_0 halves
    return np.concatenate([*rows, special]).astype(F32)


@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_encode_equals_gguf(dtype):
    encode, _, kind = BLOCKS[dtype]
    x = block_rows()
    theirs = gguf.quants.quantize(x, kind)
    np.testing.assert_array_equal(encode(x), theirs)


@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_decode_equals_gguf(dtype):
    encode, decode, kind = BLOCKS[dtype]
    raw = encode(block_rows())
    same_float(decode(raw), gguf.quants.dequantize(raw, kind).astype(np.float64))


@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_decode_of_random_bytes_equals_gguf(dtype):
    _, decode, kind = BLOCKS[dtype]
    block_bytes = len(BLOCKS[dtype][0](np.zeros(32)))
    rng = np.random.default_rng(4)
    raw = rng.integers(0, 256, (4000, block_bytes), dtype=np.uint8)
    finite = (raw[:, 1] & 0x7C) != 0x7C  # scales that are inf or NaN are no numbers to compare
    if dtype == "q4_1":
        finite &= (raw[:, 3] & 0x7C) != 0x7C
    raw = raw[finite]
    same_float(decode(raw), gguf.quants.dequantize(raw, kind).astype(np.float64))


def test_zero_blocks():
    zeros = np.zeros(32, dtype=F32)
    assert formats.q8_0_encode(zeros).tolist() == [0] * 34
    assert formats.q4_0_encode(zeros).tolist() == [0x00, 0x80] + [0x88] * 16
    assert formats.q4_0_encode(-zeros).tolist() == [0x00, 0x80] + [0x88] * 16
    assert formats.q4_1_encode(zeros).tolist() == [0] * 20
    for encode, decode, _ in BLOCKS.values():
        assert (decode(encode(zeros)) == 0).all()
        assert decode(encode(np.zeros((0, 64)))).shape == (0, 64)


# ---- copy and distances ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0", "q4_1"])
def test_cast_is_idempotent_where_the_grid_is_fixed(dtype):
    x = np.random.default_rng(5).normal(0, 1, (3, 64))
    once = copy.cast(x, dtype)
    assert once.shape == x.shape
    assert once.dtype == np.float64
    assert nmse(once, x) < 0.02
    if dtype not in BLOCKS:
        same_float(copy.cast(once, dtype), once)


def test_ulp_diff():
    a = np.array([1.0, 0.0, -0.0, np.inf, np.nan, np.nan, -1e-45], dtype=F32)
    b = np.array([1.0000001, -0.0, 1e-45, np.inf, np.nan, 1.0, 1e-45], dtype=F32)
    assert ulp_diff_f32(a, b).tolist() == [1, 0, 1, 0, 0, 2**32, 2]


def test_nmse():
    assert nmse([1.0, 2.0], [1.0, 2.0]) == 0.0
    assert nmse([1.0, 1.0], [1.0, 0.0]) == 1.0
    assert nmse([0.0], [0.0]) == 0.0
    assert nmse([1.0], [0.0]) == np.inf
    assert np.isnan(nmse([np.nan], [0.0]))
