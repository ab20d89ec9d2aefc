"""Block formats beyond Q8_0, Q4_0, Q4_1: decode to float64, encode from float32.

Every product of a half, a scale and a code is exact in float64, and so are sums of two: the cast to
float32 at the end is the only rounding, as it is in ggml's float32 arithmetic. The encoders round
to nearest; those that pyggml lacks (q2_k, q3_k, iq4_xs, nvfp4) are here to make test data.
Sources: ggml's public block definitions; OCP MX 1.0 for E2M1 and E8M0. Decoders are checked bit for
bit, and encoders where it has them, against the `gguf` package in tests/formats.
"""

import numpy as np

from .formats import (
    _f16_bytes,
    _f16_field,
    _flat,
    _inverse,
    _nibbles,
    _pack_nibbles,
    _pick,
    _split_blocks,
    e4m3_decode,
    e4m3_encode,
    f16_decode,
    f16_encode,
)

F32 = np.float32
CURVE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.0])
TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12.0])


def _blocks_of(x, n):
    """x (..., m) -> float32 (..., m / n, n)."""
    x = np.asarray(x, dtype=F32)
    return x.reshape(*x.shape[:-1], x.shape[-1] // n, n)


def _rounded(y):
    """float64 blocks (..., n_blocks, n) -> values rounded to float32, flat."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _flat(y).astype(F32).astype(np.float64)


def _quiet(function):
    """The function without warnings: scales may be infinite or NaN, and so may what they give."""

    def call(x):
        with np.errstate(all="ignore"):
            return function(x)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _cut(x, low, high):
    """x between the limits; NaN gives the lower one."""
    x = np.where(x > low, x, F32(low))
    return np.where(x < high, x, F32(high))


def _away(x):
    """Nearest integer, halves away from zero."""
    return np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)


def _extreme(x):
    """The first value of largest magnitude of the last axis, +0 when all are zeros."""
    value = _pick(x, np.abs(x).argmax(axis=-1))
    return np.where(value == 0, F32(0), value)


def _or_nan(x, block, at):
    """The encoded block; where x is not finite, halves at the offsets are NaN and all else zero."""
    bad = np.zeros_like(block)
    bad[..., [a + 1 for a in at]] = 0x7E
    return np.where(np.isfinite(x).all(axis=-1, keepdims=True), block, bad)


# ---- q5_0, q5_1 -----------------------------------------------------------------------------


def _five(blocks):
    """Bytes of h[4], q[16] -> 32 codes 0..31."""
    bits = np.unpackbits(blocks[..., :4], axis=-1, bitorder="little")
    return _nibbles(blocks[..., 4:]) + 16.0 * bits


def _pack_five(q):
    high = np.packbits(q.astype(np.uint8) >> 4, axis=-1, bitorder="little")
    return np.concatenate([high, _pack_nibbles(q.astype(np.uint8) & 15)], axis=-1)


@_quiet
def q5_0_decode(raw):
    """Blocks to values: y = d * (q - 16), q of 5 bits.

    Shapes: raw uint8 (..., n/32 * 22) -> float64 (..., n). Source: ggml block_q5_0.
    """
    blocks = _split_blocks(raw, 22)
    return _rounded(_f16_field(blocks, 0) * (_five(blocks[..., 2:]) - 16.0))


@_quiet
def q5_0_encode(x):
    """Values to blocks: d = extreme / -16, q = min(31, int(x * (1/d) + 16.5)); all in float32.

    Shapes: x finite (..., n) -> uint8 (..., n/32 * 22). Source: ggml quantize_row_q5_0_ref.
    """
    x = _blocks_of(x, 32)
    d = _extreme(x) / F32(-16)
    q = np.trunc(_cut(x * _inverse(d) + F32(16.5), 0, 31))
    return _flat(_or_nan(x, np.concatenate([_f16_bytes(d), _pack_five(q)], axis=-1), [0]))


@_quiet
def q5_1_decode(raw):
    """Blocks to values: y = float32(d * q + m), q of 5 bits.

    Shapes: raw uint8 (..., n/32 * 24) -> float64 (..., n). Source: ggml block_q5_1.
    """
    blocks = _split_blocks(raw, 24)
    return _rounded(_f16_field(blocks, 0) * _five(blocks[..., 4:]) + _f16_field(blocks, 2))


@_quiet
def q5_1_encode(x):
    """Values to blocks: m = min, d = (max - m) / 31, q = min(31, int((x - m) * (1/d) + 0.5)).

    Shapes: x finite (..., n) -> uint8 (..., n/32 * 24). Source: ggml quantize_row_q5_1_ref.
    """
    x = _blocks_of(x, 32)
    low, high = _pick(x, x.argmin(axis=-1)), _pick(x, x.argmax(axis=-1))
    d = (high - low) / F32(31)
    q = np.trunc(_cut((x - low) * _inverse(d) + F32(0.5), 0, 31))
    block = np.concatenate([_f16_bytes(d), _f16_bytes(low), _pack_five(q)], axis=-1)
    return _flat(_or_nan(x, block, [0, 2]))


# ---- tables of 16 values --------------------------------------------------------------------


def _codes(packed):
    """Bytes of n / 2 codes each half -> n indices."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int64)


def _nearest(t):
    """Index of the nearest value of CURVE; ties and NaN as `>=` has it: up, and 0."""
    middle = ((CURVE[1:] + CURVE[:-1]) / 2).astype(F32)
    return (t[..., None] >= middle).sum(axis=-1)


@_quiet
def iq4_nl_decode(raw):
    """Blocks to values: y = d * CURVE[code].

    Shapes: raw uint8 (..., n/32 * 18) -> float64 (..., n). Source: ggml block_iq4_nl.
    """
    blocks = _split_blocks(raw, 18)
    return _rounded(_f16_field(blocks, 0) * CURVE[_codes(blocks[..., 2:])])


@_quiet
def iq4_nl_encode(x):
    """Values to blocks: d = extreme / -127, the nearest code of x * (1/d).

    Shapes: x (..., n) -> uint8 (..., n/32 * 18). Source: csrc/formats/fp4.h.
    """
    x = _blocks_of(x, 32)
    d = _extreme(x) / F32(-127)
    codes = _pack_nibbles(_nearest(x * _inverse(d)))
    return _flat(_or_nan(x, np.concatenate([_f16_bytes(d), codes], axis=-1), [0]))


@_quiet
def iq4_xs_decode(raw):
    """Blocks to values: y = d * (s - 32) * CURVE[code], s of 6 bits in two places.

    Shapes: raw uint8 (..., n/256 * 136) -> float64 (..., n). Source: ggml block_iq4_xs.
    """
    blocks = _split_blocks(raw, 136)
    d, parts = _f16_field(blocks, 0), []
    high = blocks[..., 2:3].astype(np.int64) + 256 * blocks[..., 3:4].astype(np.int64)
    for g in range(8):
        low = (blocks[..., 4 + g // 2 : 5 + g // 2] >> (4 * (g % 2))) & 15
        s = low + 16 * ((high >> (2 * g)) & 3) - 32.0
        parts.append(d * s * CURVE[_codes(blocks[..., 8 + 16 * g : 24 + 16 * g])])
    return _rounded(np.concatenate(parts, axis=-1))


@_quiet
def iq4_xs_encode(x):
    """Values to blocks: each 32 as in iq4_nl, their scales six bits of the largest.

    Shapes: x (..., n) -> uint8 (..., n/256 * 136). Source: the layout; for test data.
    """
    d, s, scale = _signed_scales(x, 32, -127, -32)
    x = _blocks_of(x, 256)
    s = (s + 32).astype(np.int64)
    groups = x.reshape(*x.shape[:-1], 8, 32)
    codes = _pack_nibbles(_nearest(groups * _inverse(scale)[..., None]))
    low = (s[..., 0::2] & 15) | (s[..., 1::2] & 15) << 4
    high = sum((s[..., g : g + 1] >> 4) << (2 * g) for g in range(8))
    head = np.concatenate([high & 255, high >> 8, low], axis=-1).astype(np.uint8)
    block = np.concatenate([_f16_bytes(d), head, codes.reshape(*x.shape[:-1], 128)], axis=-1)
    return _flat(_or_nan(x, block, [0]))


@_quiet
def mxfp4_decode(raw):
    """Blocks to values: y = 2^(e - 128) * TWICE[code]; 12 * 2^127 is infinity.

    Shapes: raw uint8 (..., n/32 * 17) -> float64 (..., n). Source: ggml block_mxfp4; OCP MX 1.0.
    """
    blocks = _split_blocks(raw, 17)
    unit = np.ldexp(1.0, blocks[..., :1].astype(np.int64) - 128)
    return _rounded(unit * TWICE[_codes(blocks[..., 1:])])


@_quiet
def mxfp4_encode(x):
    """Values to blocks: 2^(e - 127) = 2^floor(log2 max|x|) / 4, the nearest code, ties toward zero.

    Blocks with NaN or infinity get e = 255 and codes 7.

    Shapes: x (..., n) -> uint8 (..., n/32 * 17). Source: OCP MX 1.0; csrc/formats/fp4.h.
    """
    x = _blocks_of(x, 32)
    finite = np.isfinite(x).all(axis=-1, keepdims=True)
    largest = np.abs(np.where(finite, x, 0)).max(axis=-1, keepdims=True)
    e = np.where(largest > 0, np.maximum(np.frexp(largest)[1] - 1 - 2 + 127, 0), 0)
    size = np.abs(x.astype(np.float64)) / np.ldexp(1.0, e - 128)
    code = (size[..., None] > np.array([0.5, 1.5, 2.5, 3.5, 5, 7, 10])).sum(axis=-1)
    code = np.where((code > 0) & (x < 0), code + 8, code)
    e, code = np.where(finite, e, 255), np.where(finite, code, 7)
    return _flat(np.concatenate([e.astype(np.uint8), _pack_nibbles(code)], axis=-1))


@_quiet
def nvfp4_decode(raw):
    """Blocks to values: 4 groups of 16, y = e4m3(d) / 2 * TWICE[code].

    The scale has no sign: bit 7 is not read, except that 0x7F is zero and 0xFF is 480.

    Shapes: raw uint8 (..., n/64 * 36) -> float64 (..., n). Source: ggml block_nvfp4.
    """
    blocks = _split_blocks(raw, 36)
    d, parts = blocks[..., :4], []
    scale = np.where(d == 0x7F, 0, np.where(d == 0xFF, 480, np.abs(e4m3_decode(d)))) / 2
    for a in range(4):
        codes = _codes(blocks[..., 4 + 8 * a : 12 + 8 * a])
        parts.append(scale[..., a : a + 1] * TWICE[codes])
    return _rounded(np.concatenate(parts, axis=-1))


@_quiet
def nvfp4_encode(x):
    """Values to blocks: d = e4m3(max|x| / 6), the nearest code.

    Shapes: x (..., n) -> uint8 (..., n/64 * 36). Source: the layout; for test data.
    """
    x = _blocks_of(x, 64)
    groups = x.reshape(*x.shape[:-1], 4, 16)
    d = e4m3_encode(np.abs(groups).max(axis=-1) / 6)
    unit = e4m3_decode(d)[..., None] / 2
    distance = np.abs(groups[..., None] - unit[..., None] * TWICE)
    code = distance.argmin(axis=-1).astype(np.uint8)
    packed = code[..., :8] | code[..., 8:] << 4
    return _flat(np.concatenate([d, packed.reshape(*x.shape[:-1], 32)], axis=-1))


# ---- K formats ------------------------------------------------------------------------------


def _groups(q):
    """List of 8 arrays (..., n_blocks, 32) -> (..., n_blocks, 256)."""
    return np.concatenate(q, axis=-1)


def _spread(s):
    """Scales (..., n_blocks, m) -> one for each of 256 elements."""
    return np.repeat(s, 256 // s.shape[-1], axis=-1)


def _two_bits(q):
    """q[64] -> 256 codes: group 4 h + k is bits 2 k of bytes 32 h .. 32 h + 31."""
    return _groups([(q[..., 32 * h : 32 * h + 32] >> 2 * k) & 3 for h in (0, 1) for k in range(4)])


def _one_bit(high):
    """high[32] -> 256 bits: group g is bit g."""
    return _groups([(high >> g) & 1 for g in range(8)])


def _four_bits(q):
    """q[128] -> 256 codes: groups 2 j and 2 j + 1 are the nibbles of bytes 32 j .. 32 j + 31."""
    return _groups(
        [(q[..., 32 * j : 32 * j + 32] >> 4 * k) & 15 for j in range(4) for k in range(2)]
    )


def _pack(q, bits, bytes_each):
    """The inverse of the three: group g goes to bits (g % per) * bits of its bytes."""
    q = q.reshape(*q.shape[:-1], 8, 32).astype(np.uint8)
    per = 256 // bytes_each  # groups that share bytes
    out = np.zeros((*q.shape[:-2], bytes_each), np.uint8)
    for g in range(8):
        at = 32 * (g // per)
        out[..., at : at + 32] |= q[..., g, :] << (bits * (g % per))
    return out


def _six_bits(s):
    """12 bytes -> 8 scales and 8 offsets of 6 bits."""
    a, b, c = (s[..., i : i + 4] for i in (0, 4, 8))
    scale = np.concatenate([a & 63, c & 15 | (a >> 6) << 4], axis=-1)
    return scale.astype(np.float64), np.concatenate([b & 63, c >> 4 | (b >> 6) << 4], axis=-1)


def _pack_six(scale, offset):
    scale, offset = scale.astype(np.uint8), offset.astype(np.uint8)
    first = scale[..., :4] | (scale[..., 4:] >> 4) << 6
    second = offset[..., :4] | (offset[..., 4:] >> 4) << 6
    third = scale[..., 4:] & 15 | (offset[..., 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=-1)


def _affine(x, group, top, scale_top):
    """(d, dmin, scales, offsets, codes): per group codes 0..top times a scale, less an offset."""
    x = _blocks_of(x, 256)
    groups = x.reshape(*x.shape[:-1], 256 // group, group)
    offset = F32(0) - np.minimum(groups.min(axis=-1), F32(0))
    scale = (groups.max(axis=-1) + offset) / F32(top)
    d_scale, d_offset = (v.max(axis=-1, keepdims=True) for v in (scale, offset))
    d, dmin = d_scale / F32(scale_top), d_offset / F32(scale_top)
    s = np.trunc(_cut(scale * (F32(scale_top) * _inverse(d_scale)) + F32(0.5), 0, scale_top))
    m = np.trunc(_cut(offset * (F32(scale_top) * _inverse(d_offset)) + F32(0.5), 0, scale_top))
    stored, low = (f16_decode(f16_encode(v)).astype(F32) for v in (d, dmin))
    q = (groups + (low * m)[..., None]) * _inverse(stored * s)[..., None] + F32(0.5)
    return d, dmin, s, m, np.trunc(_cut(q, 0, top)).reshape(x.shape)


def _signed_scales(x, group, low, scale_low):
    """(d, scales, d * scales as stored): the extreme of a group becomes `low`."""
    x = _blocks_of(x, 256)
    groups = x.reshape(*x.shape[:-1], 256 // group, group)
    scale = _extreme(groups)[..., 0] / F32(low)
    largest = _extreme(scale)
    d = np.where(largest != 0, largest / F32(scale_low), F32(0))
    s = _away(_cut(scale * (F32(scale_low) * _inverse(largest)), scale_low, -scale_low - 1))
    return d, s, f16_decode(f16_encode(d)).astype(F32) * s.astype(F32)


def _signed(x, low, scale_low):
    """(d, scales, codes from low on) of groups of 16."""
    d, s, scale = _signed_scales(x, 16, low, scale_low)
    x = _blocks_of(x, 256)
    return d, s, _away(_cut(x * _inverse(_spread(scale)), low, -low - 1))


@_quiet
def q2_k_decode(raw):
    """Blocks to values: 16 groups of 16, y = d * s * q - dmin * m, q of 2 bits.

    Shapes: raw uint8 (..., n/256 * 84) -> float64 (..., n). Source: ggml block_q2_K.
    """
    blocks = _split_blocks(raw, 84)
    scales, q = blocks[..., :16], _two_bits(blocks[..., 16:80])
    scale, offset = _f16_field(blocks, 80) * (scales & 15), _f16_field(blocks, 82) * (scales >> 4)
    return _rounded(_spread(scale) * q - _spread(offset))


@_quiet
def q2_k_encode(x):
    """Values to blocks by ranges of 16.

    Shapes: x (..., n) -> uint8 (..., n/256 * 84). Source: the layout; for test data.
    """
    d, dmin, s, m, q = _affine(x, 16, 3, 15)
    scales = (s + 16 * m).astype(np.uint8)
    return _flat(np.concatenate([scales, _pack(q, 2, 64), _f16_bytes(d), _f16_bytes(dmin)], -1))


@_quiet
def q3_k_decode(raw):
    """Blocks to values: 16 groups of 16, y = d * (s - 32) * (q - 4), q of 3 bits, s of 6.

    Shapes: raw uint8 (..., n/256 * 110) -> float64 (..., n). Source: ggml block_q3_K.
    """
    blocks = _split_blocks(raw, 110)
    q = _two_bits(blocks[..., 32:96]) + 4.0 * _one_bit(blocks[..., :32]) - 4.0
    low, high = blocks[..., 96:104], blocks[..., 104:108]
    s = np.concatenate([low & 15, low >> 4], axis=-1)
    s = s + 16.0 * np.concatenate([(high >> 2 * k) & 3 for k in range(4)], axis=-1) - 32.0
    return _rounded(_f16_field(blocks, 108) * _spread(s) * q)


@_quiet
def q3_k_encode(x):
    """Values to blocks by extremes of 16.

    Shapes: x (..., n) -> uint8 (..., n/256 * 110). Source: the layout; for test data.
    """
    d, s, q = _signed(x, -4, -32)
    q, s = (q + 4).astype(np.uint8), (s + 32).astype(np.uint8)
    low = s[..., :8] & 15 | (s[..., 8:] & 15) << 4
    high = sum((s[..., 4 * k : 4 * k + 4] >> 4) << 2 * k for k in range(4)).astype(np.uint8)
    parts = [_pack(q >> 2, 1, 32), _pack(q & 3, 2, 64), low, high, _f16_bytes(d)]
    return _flat(np.concatenate(parts, axis=-1))


@_quiet
def q4_k_decode(raw):
    """Blocks to values: 8 groups of 32, y = d * s * q - dmin * m, q of 4 bits, s and m of 6.

    Shapes: raw uint8 (..., n/256 * 144) -> float64 (..., n). Source: ggml block_q4_K.
    """
    blocks = _split_blocks(raw, 144)
    s, m = _six_bits(blocks[..., 4:16])
    scale, offset = _f16_field(blocks, 0) * s, _f16_field(blocks, 2) * m
    return _rounded(_spread(scale) * _four_bits(blocks[..., 16:]) - _spread(offset))


@_quiet
def q4_k_encode(x):
    """Values to blocks by ranges of 32.

    Shapes: x (..., n) -> uint8 (..., n/256 * 144). Source: csrc/formats/k_quants.h.
    """
    d, dmin, s, m, q = _affine(x, 32, 15, 63)
    parts = [_f16_bytes(d), _f16_bytes(dmin), _pack_six(s, m), _pack(q, 4, 128)]
    return _flat(_or_nan(_blocks_of(x, 256), np.concatenate(parts, axis=-1), [0, 2]))


@_quiet
def q5_k_decode(raw):
    """Blocks to values: 8 groups of 32, y = d * s * q - dmin * m, q of 5 bits, s and m of 6.

    Shapes: raw uint8 (..., n/256 * 176) -> float64 (..., n). Source: ggml block_q5_K.
    """
    blocks = _split_blocks(raw, 176)
    s, m = _six_bits(blocks[..., 4:16])
    scale, offset = _f16_field(blocks, 0) * s, _f16_field(blocks, 2) * m
    q = _four_bits(blocks[..., 48:]) + 16.0 * _one_bit(blocks[..., 16:48])
    return _rounded(_spread(scale) * q - _spread(offset))


@_quiet
def q5_k_encode(x):
    """Values to blocks by ranges of 32.

    Shapes: x (..., n) -> uint8 (..., n/256 * 176). Source: csrc/formats/k_quants.h.
    """
    d, dmin, s, m, q = _affine(x, 32, 31, 63)
    q = q.astype(np.uint8)
    parts = [_f16_bytes(d), _f16_bytes(dmin), _pack_six(s, m)]
    parts += [_pack(q >> 4, 1, 32), _pack(q & 15, 4, 128)]
    return _flat(_or_nan(_blocks_of(x, 256), np.concatenate(parts, axis=-1), [0, 2]))


def _six_place(low):
    """low[128] -> 256 codes: group 4 h + k is nibble k / 2 of 32 bytes from 64 h + 32 (k % 2)."""
    at = [(64 * h + 32 * (k % 2), 4 * (k // 2)) for h in (0, 1) for k in range(4)]
    return _groups([(low[..., a : a + 32] >> shift) & 15 for a, shift in at])


@_quiet
def q6_k_decode(raw):
    """Blocks to values: 16 groups of 16, y = d * s * (q - 32), q of 6 bits, s a signed byte.

    Shapes: raw uint8 (..., n/256 * 210) -> float64 (..., n). Source: ggml block_q6_K.
    """
    blocks = _split_blocks(raw, 210)
    q = _six_place(blocks[..., :128]) + 16.0 * _two_bits(blocks[..., 128:192]) - 32.0
    s = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float64)
    return _rounded(_f16_field(blocks, 208) * _spread(s) * q)


@_quiet
def q6_k_encode(x):
    """Values to blocks by extremes of 16.

    Shapes: x (..., n) -> uint8 (..., n/256 * 210). Source: csrc/formats/k_quants.h.
    """
    d, s, q = _signed(x, -32, -128)
    q = (q + 32).astype(np.uint8)
    groups = (q & 15).reshape(*q.shape[:-1], 2, 2, 2, 32)  # half, nibble, place, element
    low = (groups[..., 0, :, :] | groups[..., 1, :, :] << 4).reshape(*q.shape[:-1], 128)
    parts = [low, _pack(q >> 4, 2, 64), s.astype(np.int8).view(np.uint8), _f16_bytes(d)]
    return _flat(_or_nan(_blocks_of(x, 256), np.concatenate(parts, axis=-1), [208]))
