"""The dtypes of pyggml, made at import from the C table (csrc/core/dtype_table.inc).

Root mean square error of values from a standard normal distribution, stored and read back, and bits
a value with the scales of its block:

    dtype    bits    RMS error
    f32      32      0
    f16      16      0.000208
    bf16     16      0.00166
    f8_e4m3  8       0.0266
    q8_0     8.5     0.00535
    q6_k     6.5625  0.0188
    q5_1     6       0.0379
    q5_0     5.5     0.0427
    q5_k     5.5     0.0382
    q4_1     5       0.0782
    q4_0     4.5     0.0859
    q4_k     4.5     0.0783
    iq4_nl   4.5     0.0799
    nvfp4    4.5     0.0951   decoded only
    mxfp4    4.25    0.115
    iq4_xs   4.25    0.08     decoded only
    q3_k     3.4375  0.155    decoded only
    q2_k     2.625   0.328    decoded only

Encoding rounds to nearest and searches for nothing; files made by other tools, which weigh errors,
may hold better values. The figures of what pyggml only decodes are of plain rounding, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from pyggml import _core
from pyggml.checks import as_int, shown
from pyggml.errors import DTypeError, ParameterError

if TYPE_CHECKING:
    from typing import TypeAlias

    DTypeLike: TypeAlias = "DType | str | np.dtype[Any] | type"

# PYG_DT_* of csrc/core/dtype.h
_FLOAT, _INDEX, _BLOCK, _SCALED, _FIXED, _INTEGER, _STORAGE = (1 << i for i in range(7))

_NO_DTYPE = (TypeError, ValueError, KeyError, SyntaxError)  # numpy raises all of these


class DType:
    """One dtype: a row of the C table.

    Equal to what stands for it: `pg.f32 == np.float32 == np.dtype("float32")`, and `pg.f32 ==
    "f32"`. In dicts and sets it counts as its name, so that "f32" finds what pg.f32 put there; the
    other spellings are equal and hash otherwise, as those of numpy's dtypes do.

    Attributes:
        name: "f32", "f8_e4m3", "q8_0" ...
        id: row number in the C table.
        gguf_id: tensor type id in GGUF files; None where files have none.
        block: elements a block (1 for scalar dtypes).
        itemsize: bytes a block (of one element for scalar dtypes).
        is_float: converts to and from F32; ops compute with it.
        is_index: an integer dtype that can index rows.
        is_integer: a signed integer.
        is_storage: held, viewed, copied and cast, but no operand of arithmetic (F64, I8, I16).
        is_block: elements share a block and have no address of their own.
        is_scaled: takes a static scale kept beside the tensor (F8_E4M3).
        is_fixed: is decoded only: its bytes come from files, nothing can be stored in it.
        numpy: the numpy dtype, None for block formats.
    """

    __slots__ = (
        "block",
        "gguf_id",
        "id",
        "is_block",
        "is_fixed",
        "is_float",
        "is_index",
        "is_integer",
        "is_scaled",
        "is_storage",
        "itemsize",
        "name",
        "numpy",
    )

    def __init__(self, number: int, row: tuple[str, int, int, int, int, str]) -> None:
        self.id = number
        self.name, gguf_id, self.block, self.itemsize, flags, numpy_name = row
        self.gguf_id: int | None = gguf_id if gguf_id >= 0 else None
        self.is_float = bool(flags & _FLOAT)
        self.is_index = bool(flags & _INDEX)
        self.is_block = bool(flags & _BLOCK)
        self.is_scaled = bool(flags & _SCALED)
        self.is_fixed = bool(flags & _FIXED)
        self.is_integer = bool(flags & _INTEGER)
        self.is_storage = bool(flags & _STORAGE)
        self.numpy: np.dtype[Any] | None = None
        if numpy_name:
            self.numpy = np.dtype(getattr(ml_dtypes, numpy_name, numpy_name))

    @property
    def dtype(self) -> np.dtype[Any]:
        """What numpy takes the dtype for: `np.zeros(3, pg.f16)`, `array.astype(node.dtype)`.

        Raises:
            AttributeError: of block formats, which numpy has not got.
        """
        if self.numpy is None:
            raise AttributeError(f"{self.name} has no numpy dtype")
        return self.numpy

    def __repr__(self) -> str:
        return f"pyggml.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        if isinstance(other, str) and other.lower() in BY_NAME:
            return BY_NAME[other.lower()] is self
        if not isinstance(other, (str, type, np.dtype)):
            return NotImplemented
        try:
            return self.numpy is not None and bool(self.numpy == np.dtype(other))
        except _NO_DTYPE:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))

    def row_bytes(self, n: int) -> int:
        """Bytes of n elements.

        Raises:
            DTypeError: n is not a multiple of the block.
            ParameterError: n is no integer, or negative.
        """
        count = as_int("row_bytes", n)
        if count < 0:
            raise ParameterError(f"row_bytes: {shown(count)} elements")
        if count % self.block:
            raise DTypeError(
                f"{self.name}: {shown(count)} elements are not whole blocks of {self.block}"
            )
        return count // self.block * self.itemsize


DTYPES: Final = tuple(DType(i, row) for i, row in enumerate(_core.dtype_table()))
BY_NAME: Final = {d.name: d for d in DTYPES}
_BY_NUMPY: Final = {d.numpy: d for d in DTYPES if d.numpy is not None}

f32: Final = BY_NAME["f32"]
f16: Final = BY_NAME["f16"]
bf16: Final = BY_NAME["bf16"]
f8_e4m3: Final = BY_NAME["f8_e4m3"]
i32: Final = BY_NAME["i32"]
i64: Final = BY_NAME["i64"]
q8_0: Final = BY_NAME["q8_0"]
q4_0: Final = BY_NAME["q4_0"]
q4_1: Final = BY_NAME["q4_1"]
q5_0: Final = BY_NAME["q5_0"]
q5_1: Final = BY_NAME["q5_1"]
q2_k: Final = BY_NAME["q2_k"]
q3_k: Final = BY_NAME["q3_k"]
q4_k: Final = BY_NAME["q4_k"]
q5_k: Final = BY_NAME["q5_k"]
q6_k: Final = BY_NAME["q6_k"]
iq4_nl: Final = BY_NAME["iq4_nl"]
iq4_xs: Final = BY_NAME["iq4_xs"]
mxfp4: Final = BY_NAME["mxfp4"]
nvfp4: Final = BY_NAME["nvfp4"]
f64: Final = BY_NAME["f64"]
i8: Final = BY_NAME["i8"]
i16: Final = BY_NAME["i16"]


def dtype(value: DTypeLike) -> DType:
    """The DType that a name ("f8_e4m3"), a numpy dtype or a DType stands for.

    pyggml's names count bits and come before numpy's one-letter codes, which count bytes: "i8" is
    int8 and "f16" float16, but "f8" is float64.

    Args:
        value: one of those; names in any case.

    Raises:
        DTypeError: pyggml has no such dtype; the message lists the names.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value.lower() in BY_NAME:
        return BY_NAME[value.lower()]
    try:
        # numpy takes None for float64
        found = None if value is None else _BY_NUMPY.get(np.dtype(value).newbyteorder("="))
    except _NO_DTYPE:
        found = None
    if found is None:
        raise DTypeError(f"{shown(value)} is not a dtype of pyggml; there are {', '.join(BY_NAME)}")
    return found
