"""Number formats: decode to float64 and encode from float, by bit fields and exact arithmetic.

E4M3, F16 and BF16 are scalar formats; Q8_0, Q4_0 and Q4_1 are ggml's blocks of 32.
Sources: OCP 8-bit Floating Point Specification (OFP8) rev 1.0; IEEE 754-2019; ggml's block
formats, checked byte for byte against the `gguf` package in tests/formats.
"""

import numpy as np

BLOCK = 32  # elements of one Q8_0, Q4_0 or Q4_1 block
Q8_0_BYTES = 34  # f16 d, 32 x int8
Q4_0_BYTES = 18  # f16 d, 16 bytes of two nibbles
Q4_1_BYTES = 20  # f16 d, f16 m, 16 bytes of two nibbles

# How the codes of a format that are wider than a byte lie in memory.
WORDS = {"f32": "<f4", "f16": "<u2", "bf16": "<u2"}


def _to_f64(x):
    """Exact float64 of x; a signalling NaN becomes quiet, which numpy would warn about."""
    with np.errstate(invalid="ignore"):
        return np.asarray(x).astype(np.float64)


# ---- F8_E4M3 --------------------------------------------------------------------------------


def _e4m3_value(code):
    """One code S.EEEE.MMM -> float: (1 + M/8) * 2^(E-7), or M * 2^-9 when E = 0."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 0xF, code & 0x7
    if exponent == 0xF and mantissa == 0x7:
        return np.copysign(np.nan, sign)
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1.0 + mantissa / 8.0) * 2.0 ** (exponent - 7)


E4M3_VALUES = np.array([_e4m3_value(code) for code in range(256)], dtype=np.float64)
E4M3_MAX = 448.0

# Midpoint i lies between codes i and i + 1. Neighbours differ by one unit in the last place,
# so 5 bits hold every midpoint: exact in float32, and in float64 all the more.
_E4M3_MIDPOINTS = (E4M3_VALUES[0x00:0x7E] + E4M3_VALUES[0x01:0x7F]) / 2.0


def e4m3_decode(codes):
    """Value of each E4M3 code: the table of all 256.

    Shapes: codes uint8 (...) -> float64 (...).
    Source: OFP8 rev 1.0, E4M3: bias 7, no infinity, 0x7F and 0xFF are NaN, largest 448.
    """
    return E4M3_VALUES[np.asarray(codes, dtype=np.uint8)]


def e4m3_encode(x):
    """Nearest E4M3 code, ties to the even code; |x| >= 448 and inf give +-448, NaN keeps its sign.

    |x| is placed among the exact midpoints of neighbouring codes: one rounding, whatever the
    input's precision. Code parity is mantissa parity, so "even code" is IEEE's tie rule.

    Shapes: x float16, float32 or float64 (...) -> uint8 (...).
    Source: OFP8 rev 1.0 (saturating mode); IEEE 754-2019, 4.3.1 roundTiesToEven.
    """
    x = np.asarray(x)
    negative = np.signbit(x)
    magnitude = np.abs(_to_f64(x))
    code = np.searchsorted(_E4M3_MIDPOINTS, magnitude, side="left")  # midpoints below |x|
    above = _E4M3_MIDPOINTS[np.minimum(code, len(_E4M3_MIDPOINTS) - 1)]
    code = np.where((magnitude == above) & (code % 2 == 1), code + 1, code)
    code = np.where(np.isnan(magnitude), 0x7F, code)
    return np.where(negative, code | 0x80, code).astype(np.uint8)


f8_e4m3_encode, f8_e4m3_decode = e4m3_encode, e4m3_decode  # by the dtype's name, as copy.py asks


def e4m3_boundaries():
    """All points where the E4M3 code changes: midpoints of neighbouring codes, both signs.

    Shapes: () -> float32 (252,), ascending. float32, so that np.nextafter gives the values
    just beside a boundary in the precision the encoder is fed with.
    Source: OFP8 rev 1.0; computed from the code values.
    """
    return np.concatenate([-_E4M3_MIDPOINTS[::-1], _E4M3_MIDPOINTS]).astype(np.float32)


def e4m3_round(x, scale=1.0):
    """What a scaled E4M3 store gives back: decode(encode(x / scale)) * scale.

    Shapes: x (...) float -> float64 (...).
    Source: docs/design.md, F8_E4M3 scales: a store divides, a read multiplies.
    """
    return e4m3_decode(e4m3_encode(np.asarray(x, dtype=np.float64) / scale)) * scale


# ---- F32, F16 and BF16 ----------------------------------------------------------------------


def f32_encode(x):
    """binary32 nearest to x, ties to even; overflow gives inf.

    Shapes: x float (...) -> float32 (...). Source: IEEE 754-2019, 4.3.1.
    """
    with np.errstate(over="ignore"):
        return np.asarray(x).astype("<f4")


def f32_decode(values):
    """The same values.

    Shapes: float32 (...) -> float64 (...). Source: IEEE 754-2019, 3.4.
    """
    return np.asarray(values).astype(np.float64)


def _ieee_decode(bits, exp_bits, man_bits):
    """IEEE-like fields -> float64: (2^p + M) * 2^(E-bias-p), M * 2^(1-bias-p) when E = 0."""
    bits = np.asarray(bits, dtype=np.uint16).astype(np.int64)
    bias, top = 2 ** (exp_bits - 1) - 1, 2**exp_bits - 1
    exponent, mantissa = (bits >> man_bits) & top, bits & (2**man_bits - 1)
    whole = np.where(exponent > 0, mantissa + 2**man_bits, mantissa)
    value = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - man_bits)
    special = np.where(mantissa == 0, np.inf, np.nan)
    value = np.where(exponent == top, special, value)
    return np.copysign(value, np.where(bits & 0x8000, -1.0, 1.0))


def _ieee_encode(x, exp_bits, man_bits):
    """Round float64 fields to 1 + exp_bits + man_bits, nearest even, in int64 arithmetic."""
    bits = _to_f64(x).view(np.int64)
    bias, top = 2 ** (exp_bits - 1) - 1, 2**exp_bits - 1
    sign = np.where(bits < 0, 0x8000, 0)
    exp64, man64 = (bits >> 52) & 0x7FF, bits & (2**52 - 1)
    # |x| = whole * 2^(power - 52)
    whole = np.where(exp64 > 0, man64 + 2**52, man64)
    power = np.maximum(exp64, 1) - 1023
    # Drop `shift` low bits; below the smallest normal the unit stays fixed, so more go.
    # From 55 on all bits are under half a unit: the result is 0 and int64 does not overflow.
    shift = np.minimum(52 - man_bits + np.maximum(1 - bias - power, 0), 55)
    kept, rest, half = whole >> shift, whole & ((1 << shift) - 1), 1 << (shift - 1)
    kept = kept + ((rest > half) | ((rest == half) & (kept % 2 == 1)))
    # `kept` holds the implicit bit: adding it to E - 1 gives E, and a carry moves E up by itself.
    code = (np.maximum(power + bias - 1, 0) << man_bits) + kept
    code = np.minimum(code, top << man_bits)  # overflow and inf
    quiet = (top << man_bits) | (1 << (man_bits - 1)) | (man64 >> (52 - man_bits))
    code = np.where((exp64 == 0x7FF) & (man64 != 0), quiet, code)
    return (sign | code).astype(np.uint16)


def f16_decode(bits):
    """Value of IEEE binary16 bits, subnormals included.

    Shapes: bits uint16 (...) -> float64 (...). Source: IEEE 754-2019, 3.4.
    """
    return _ieee_decode(bits, 5, 10)


def f16_encode(x):
    """binary16 bits nearest to x, ties to even; overflow gives inf; NaN quiet, sign kept.

    Shapes: x float32 or float64 (...) -> uint16 (...). Source: IEEE 754-2019, 4.3.1.
    """
    return _ieee_encode(x, 5, 10)


def bf16_decode(bits):
    """Value of bfloat16 bits: the upper half of a binary32.

    Shapes: bits uint16 (...) -> float64 (...). Source: bfloat16, 8 exponent and 7 mantissa bits.
    """
    return _ieee_decode(bits, 8, 7)


def bf16_encode(x):
    """bfloat16 bits nearest to x, ties to even; overflow gives inf; NaN quiet, sign kept.

    Shapes: x float32 or float64 (...) -> uint16 (...). Source: as bf16_decode; IEEE 754 4.3.1.
    """
    return _ieee_encode(x, 8, 7)


# ---- blocks of 32 ---------------------------------------------------------------------------


def _split_blocks(raw, block_bytes):
    """Raw rows uint8 (..., n_blocks * bytes) -> (..., n_blocks, bytes)."""
    raw = np.asarray(raw, dtype=np.uint8)
    return raw.reshape(*raw.shape[:-1], raw.shape[-1] // block_bytes, block_bytes)


def _f16_field(blocks, at):
    """The little-endian f16 at byte `at` of each block: value (..., n_blocks, 1)."""
    low, high = blocks[..., at : at + 1], blocks[..., at + 1 : at + 2]
    return f16_decode(low.astype(np.uint16) | (high.astype(np.uint16) << 8))


def _f16_bytes(x):
    """f16 of x (..., n_blocks, 1) as little-endian bytes (..., n_blocks, 2)."""
    bits = f16_encode(x)
    return np.concatenate([bits & 0xFF, bits >> 8], axis=-1).astype(np.uint8)


def _nibbles(packed):
    """16 bytes -> 32 values: low nibbles are elements 0..15, high nibbles 16..31."""
    return np.concatenate([packed & 0xF, packed >> 4], axis=-1).astype(np.float64)


def _pack_nibbles(q):
    """32 values 0..15 -> 16 bytes, the inverse of _nibbles."""
    q = q.astype(np.uint8)
    return q[..., :16] | (q[..., 16:] << 4)


def _flat(blocks):
    """(..., n_blocks, m) -> (..., n_blocks * m)."""
    return blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1])


def _float_blocks(x):
    """Split x (..., n), n a multiple of 32 -> float32 (..., n / 32, 32)."""
    x = np.asarray(x, dtype=np.float32)
    return x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)


def _inverse(d):
    """1 / d in float32, 0 for d = 0."""
    safe = np.where(d == 0, np.float32(1), d)
    return np.where(d == 0, np.float32(0), np.float32(1) / safe)


def _pick(blocks, index):
    """The element of each block at `index` (..., n_blocks): (..., n_blocks, 1)."""
    return np.take_along_axis(blocks, index[..., None], axis=-1)


def q8_0_decode(raw):
    """Blocks to values: y = d * q.

    A block is f16 d and 32 int8 q; the product fits float32 exactly.

    Shapes: raw uint8 (..., n/32 * 34) -> float64 (..., n). Source: ggml block_q8_0.
    """
    blocks = _split_blocks(raw, Q8_0_BYTES)
    q = blocks[..., 2:].view(np.int8).astype(np.float64)
    return _flat(_f16_field(blocks, 0) * q)


def q8_0_encode(x):
    """Values to blocks: d = amax / 127, q = round(x * (1/d)), halves away from zero.

    All in float32; q is formed with the float32 d, before its rounding to the stored f16.

    Shapes: x finite (..., n) -> uint8 (..., n/32 * 34). Source: ggml quantize_row_q8_0_ref.
    """
    x = _float_blocks(x)
    d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    scaled = (x * _inverse(d)).astype(np.float64)  # + 0.5 below is exact in float64
    q = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int8)
    return _flat(np.concatenate([_f16_bytes(d), q.view(np.uint8)], axis=-1))


def q4_0_decode(raw):
    """Blocks to values: y = d * (q - 8).

    A block is f16 d and 32 nibbles q; the product fits float32 exactly.

    Shapes: raw uint8 (..., n/32 * 18) -> float64 (..., n). Source: ggml block_q4_0.
    """
    blocks = _split_blocks(raw, Q4_0_BYTES)
    return _flat(_f16_field(blocks, 0) * (_nibbles(blocks[..., 2:]) - 8.0))


def q4_0_encode(x):
    """Values to blocks: d = extreme / -8, q = min(15, int(x * (1/d) + 8.5)); all in float32.

    The extreme is the signed value of largest magnitude, the first of equal ones. A block of
    zeros has d = 0 / -8 = -0.0 whatever the signs of its zeros, since ggml's running maximum
    starts at +0.

    Shapes: x finite (..., n) -> uint8 (..., n/32 * 18). Source: ggml quantize_row_q4_0_ref.
    """
    x = _float_blocks(x)
    extreme = _pick(x, np.abs(x).argmax(axis=-1))
    extreme = np.where(extreme == 0, np.float32(0), extreme)
    d = extreme / np.float32(-8)
    q = np.minimum(15, np.trunc(x * _inverse(d) + np.float32(8.5)))
    return _flat(np.concatenate([_f16_bytes(d), _pack_nibbles(q)], axis=-1))


def q4_1_decode(raw):
    """Blocks to values: y = float32(d * q + m): f16 d and m, 32 nibbles q per block.

    d * q + m is exact in float64 (its bits span at most 2^20 to 2^-24), so the cast is the only
    rounding, the same one that a float32 addition makes.

    Shapes: raw uint8 (..., n/32 * 20) -> float64 (..., n). Source: ggml block_q4_1.
    """
    blocks = _split_blocks(raw, Q4_1_BYTES)
    y = _f16_field(blocks, 0) * _nibbles(blocks[..., 4:]) + _f16_field(blocks, 2)
    return _flat(y.astype(np.float32).astype(np.float64))


def q4_1_encode(x):
    """Values to blocks: m = min, d = (max - m) / 15, q = min(15, int((x - m) * (1/d) + 0.5)).

    All in float32, with d and m before their rounding to the stored f16.

    Shapes: x finite (..., n) -> uint8 (..., n/32 * 20). Source: ggml quantize_row_q4_1_ref.
    """
    x = _float_blocks(x)
    low, high = _pick(x, x.argmin(axis=-1)), _pick(x, x.argmax(axis=-1))
    d = (high - low) / np.float32(15)
    q = np.minimum(15, np.trunc((x - low) * _inverse(d) + np.float32(0.5)))
    return _flat(np.concatenate([_f16_bytes(d), _f16_bytes(low), _pack_nibbles(q)], axis=-1))
