"""From numpy arrays to the bytes of a tensor type, in numpy alone.

Used by the writer, so that files can be made without the C extension. Rounding is to nearest even
for the plain types; Q8_0 follows ggml's reference quantisation bit for bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyggml.gguf.constants import TensorType
from pyggml.gguf.reader import NUMPY_DTYPES

E4M3_MAX: Final = 448.0
Q8_0_BLOCK: Final = 32

_TYPE_OF_DTYPE: Final = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
_EXACT_IN_F32: Final = frozenset(
    name for name, dtype in NUMPY_DTYPES.items() if dtype.kind != "i" and dtype.itemsize < 4
)
_ENCODED: Final = ("f32", *(name for name in NUMPY_DTYPES if name in _EXACT_IN_F32), "q8_0")

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def type_of(array: npt.NDArray[Any]) -> str | None:
    """Name of the tensor type whose values an array's dtype holds, or None."""
    try:
        return _TYPE_OF_DTYPE.get(array.dtype.newbyteorder("<"))
    except TypeError:  # numpy's newer dtypes, such as StringDType, have no byte order
        return None


def check_encodable(array: npt.NDArray[Any], tensor_type: TensorType) -> None:
    """Raise ValueError unless `encode` can turn the array into the type."""
    have, want = type_of(array), tensor_type.name
    if have == want or (have == "f64" and want == "f32"):
        return
    if (have == "f32" or have in _EXACT_IN_F32) and want in _ENCODED:
        return
    hint = "; convert it to float32 first" if array.dtype.kind == "f" else ""
    if have == "f32" or have in _EXACT_IN_F32:
        hint = f"; floats are written as {', '.join(_ENCODED)}"
    raise ValueError(f"cannot write a {array.dtype} array as {want}{hint}")


def encode(array: npt.NDArray[Any], tensor_type: TensorType) -> Bytes:
    """The array's bytes in the tensor type: uint8 (n_bytes,), row-major.

    Shapes: any; for q8_0 the last axis is a multiple of 32.
    Dtypes: the type's own, or any float up to 32 bits (64 for f32) for f32, f16, bf16, f8_e4m3 and
    q8_0. f16 and bf16 overflow to infinity; f8_e4m3 saturates at +-448. NaN keeps its sign.
    """
    if type_of(array) == tensor_type.name:
        values = np.ascontiguousarray(array, dtype=NUMPY_DTYPES[tensor_type.name])
    else:
        # conversions of NaN, and overflow to infinity, are meant
        with np.errstate(all="ignore"):
            x = np.ascontiguousarray(array, dtype="<f4")
            if tensor_type.name == "q8_0":
                return encode_q8_0(x)
            if tensor_type.name == "f8_e4m3":
                # the cast alone would turn what is above 464 into NaN
                x = np.clip(x, -E4M3_MAX, E4M3_MAX)
            values = x.astype(NUMPY_DTYPES[tensor_type.name])
    return values.reshape(-1).view(np.uint8)


def encode_q8_0(x: npt.NDArray[np.float32]) -> Bytes:
    """Q8_0 blocks of a float32 array: per 32 values an f16 scale d and 32 int8 codes.

    d = max|x| / 127 and q = round(x / d), half away from zero, with the unrounded d, as ggml does.
    A block whose 1/d is not finite gets zero codes: its stored d is zero anyway.
    """
    blocks = x.reshape(-1, Q8_0_BLOCK)
    with np.errstate(all="ignore"):
        d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
        inverse = np.where(d > 0, np.float32(1) / d, np.float32(0))
        inverse = np.where(np.isfinite(inverse), inverse, np.float32(0))
        scaled = blocks * inverse
        whole = np.trunc(scaled)
        # the fraction is exact, adding 0.5 before truncating would not be
        half_up = np.where(np.abs(scaled - whole) >= 0.5, np.sign(scaled), np.float32(0))
        codes = (whole + half_up).astype(np.int8)
        out = np.empty((blocks.shape[0], 2 + Q8_0_BLOCK), np.uint8)
        out[:, :2] = d.astype("<f2").view(np.uint8)
    out[:, 2:] = codes.view(np.uint8)
    return out.reshape(-1)
