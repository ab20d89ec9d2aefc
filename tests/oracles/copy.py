"""Casts between dtypes: raw bytes of a row in any format, and back."""

import numpy as np

from . import blocks, formats


def encode(x, dtype):
    """Bytes of x in the named dtype: one rounding from x's own precision (blocks: via float32).

    Shapes: x float (..., n) -> uint8 (..., bytes of n elements), little-endian.
    Source: formats.py, blocks.py; IEEE 754 for f32.
    """
    codes = np.asarray(_oracle(dtype, "encode")(x))
    little = codes.astype(codes.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).view(np.uint8)


def decode(raw, dtype):
    """Values of raw bytes in the named dtype.

    Shapes: raw uint8 (..., bytes of n elements) -> float64 (..., n). Source: formats.py, blocks.py.
    """
    raw = np.ascontiguousarray(raw, dtype=np.uint8)
    return _oracle(dtype, "decode")(raw.view(formats.WORDS.get(dtype, "u1")))


def cast(x, dtype):
    """The values that x has after a store in `dtype`: decode(encode(x)).

    Shapes: x float (..., n) -> float64 (..., n). Source: formats.py, blocks.py.
    """
    return decode(encode(x, dtype), dtype)


def _oracle(dtype, way):
    for module in (formats, blocks):
        if hasattr(module, f"{dtype}_{way}"):
            return getattr(module, f"{dtype}_{way}")
    raise LookupError(
        f"{dtype} has no oracle: write {dtype}_encode and {dtype}_decode in "
        "tests/oracles/formats.py or blocks.py (codes wider than a byte also in formats.WORDS)"
    )
