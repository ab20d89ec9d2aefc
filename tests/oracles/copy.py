"""Casts between dtypes: raw bytes of a row in any format, and back."""

import numpy as np

from . import blocks, formats


def encode(x, dtype):
    """Bytes of x in the named dtype: one rounding from x's own precision (blocks: via float32).

    Shapes: x float (..., n) -> uint8 (..., bytes of n elements), little-endian.
    Source: formats.py, blocks.py; IEEE 754 for f32.
    """
    if dtype == "f8_e4m3":
        return formats.e4m3_encode(x)
    if dtype in _BLOCK_ENCODERS:
        return _BLOCK_ENCODERS[dtype](x)
    if dtype == "f32":
        with np.errstate(over="ignore"):
            wide = np.asarray(x).astype("<f4")
    else:
        wide = {"f16": formats.f16_encode, "bf16": formats.bf16_encode}[dtype](x).astype("<u2")
    return np.ascontiguousarray(wide).view(np.uint8)


def decode(raw, dtype):
    """Values of raw bytes in the named dtype.

    Shapes: raw uint8 (..., bytes of n elements) -> float64 (..., n). Source: formats.py, blocks.py.
    """
    raw = np.ascontiguousarray(raw, dtype=np.uint8)
    if dtype == "f8_e4m3":
        return formats.e4m3_decode(raw)
    if dtype in _BLOCK_DECODERS:
        return _BLOCK_DECODERS[dtype](raw)
    if dtype == "f32":
        return raw.view("<f4").astype(np.float64)
    return {"f16": formats.f16_decode, "bf16": formats.bf16_decode}[dtype](raw.view("<u2"))


def cast(x, dtype):
    """The values that x has after a store in `dtype`: decode(encode(x)).

    Shapes: x float (..., n) -> float64 (..., n). Source: formats.py, blocks.py.
    """
    return decode(encode(x, dtype), dtype)


_BLOCK_ENCODERS = {
    "q8_0": formats.q8_0_encode,
    "q4_0": formats.q4_0_encode,
    "q4_1": formats.q4_1_encode,
    **blocks.ENCODERS,
}
_BLOCK_DECODERS = {
    "q8_0": formats.q8_0_decode,
    "q4_0": formats.q4_0_decode,
    "q4_1": formats.q4_1_decode,
    **blocks.DECODERS,
}
