"""The numbers of the GGUF format: tensor types, metadata types, file types, limits.

Used by the reader, the writer and every tool that prints what a file holds. All valid type ids are
listed, also those that pyggml cannot compute with, so that any file can be opened and described.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from pyggml.checks import as_int, shown
from pyggml.errors import ShapeError

MAGIC: Final = b"GGUF"
VERSION: Final = 3
READABLE_VERSIONS: Final = (2, 3)

HEADER_BYTES: Final = 24  # magic, version u32, tensor count u64, key count u64
MIN_KEY_VALUE_BYTES: Final = 13  # key length u64, one key byte, type u32; a value adds to it
MIN_TENSOR_INFO_BYTES: Final = 24  # name length u64, n_dims u32, type u32, offset u64

DEFAULT_ALIGNMENT: Final = 32
MIN_ALIGNMENT: Final = 8  # the format wants a multiple of 8: the widest element is 8 bytes
MAX_DIMS: Final = 4
MAX_KEY_BYTES: Final = 65535
MAX_TENSOR_NAME_BYTES: Final = 63  # ggml keeps names in 64 bytes with the terminator
MAX_STRING_BYTES: Final = 1 << 30
MAX_ARRAY_ELEMENTS: Final = 1 << 30
MAX_INT64: Final = (1 << 63) - 1

KEY_ALIGNMENT: Final = "general.alignment"
KEY_ARCHITECTURE: Final = "general.architecture"
KEY_FILE_TYPE: Final = "general.file_type"
KEY_QUANTIZATION_VERSION: Final = "general.quantization_version"
QUANTIZATION_VERSION: Final = 2


class ValueType(IntEnum):
    """Types of a metadata value, by their number in the file."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    U64 = 10
    I64 = 11
    F64 = 12

    @property
    def label(self) -> str:
        """The type's name in pyggml, such as ``"u32"``."""
        return self.name.lower()


VALUE_TYPE_BY_NAME: Final[dict[str, ValueType]] = {t.label: t for t in ValueType}

# struct codes of the types of fixed size, little endian without padding
VALUE_FORMATS: Final[dict[ValueType, str]] = {
    ValueType.U8: "<B",
    ValueType.I8: "<b",
    ValueType.U16: "<H",
    ValueType.I16: "<h",
    ValueType.U32: "<I",
    ValueType.I32: "<i",
    ValueType.F32: "<f",
    ValueType.BOOL: "<B",
    ValueType.U64: "<Q",
    ValueType.I64: "<q",
    ValueType.F64: "<d",
}

# the same types as numpy dtypes
VALUE_DTYPES: Final[dict[ValueType, str]] = {
    ValueType.U8: "|u1",
    ValueType.I8: "|i1",
    ValueType.U16: "<u2",
    ValueType.I16: "<i2",
    ValueType.U32: "<u4",
    ValueType.I32: "<i4",
    ValueType.F32: "<f4",
    ValueType.BOOL: "|b1",
    ValueType.U64: "<u8",
    ValueType.I64: "<i8",
    ValueType.F64: "<f8",
}


class TensorType(NamedTuple):
    """A type that a tensor can have in a file.

    Attributes:
        name: pyggml's name, lower case.
        id: the number in the file.
        block: elements in a block; 1 for the plain types.
        bytes: bytes of a block.
    """

    name: str
    id: int
    block: int
    bytes: int

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of n elements.

        Raises:
            ShapeError: n is negative or no multiple of the block.
            ParameterError: n is no integer.
        """
        n = as_int(f"row of {self.name}", n)
        if n < 0 or n % self.block:
            raise ShapeError(
                f"row of {self.name}: must be a multiple of {self.block} elements, got {shown(n)}"
            )
        return n // self.block * self.bytes


FP8_TYPE_ID: Final = 43  # the next id that ggml has not given away; see FP8_IDS

# fmt: off
_ROWS: Final = (
    #          name      id block bytes
    TensorType("f32",     0,   1,   4),
    TensorType("f16",     1,   1,   2),
    TensorType("q4_0",    2,  32,  18),
    TensorType("q4_1",    3,  32,  20),
    TensorType("q5_0",    6,  32,  22),
    TensorType("q5_1",    7,  32,  24),
    TensorType("q8_0",    8,  32,  34),
    TensorType("q8_1",    9,  32,  36),
    TensorType("q2_k",   10, 256,  84),
    TensorType("q3_k",   11, 256, 110),
    TensorType("q4_k",   12, 256, 144),
    TensorType("q5_k",   13, 256, 176),
    TensorType("q6_k",   14, 256, 210),
    TensorType("q8_k",   15, 256, 292),
    TensorType("iq2_xxs", 16, 256, 66),
    TensorType("iq2_xs", 17, 256,  74),
    TensorType("iq3_xxs", 18, 256, 98),
    TensorType("iq1_s",  19, 256,  50),
    TensorType("iq4_nl", 20,  32,  18),
    TensorType("iq3_s",  21, 256, 110),
    TensorType("iq2_s",  22, 256,  82),
    TensorType("iq4_xs", 23, 256, 136),
    TensorType("i8",     24,   1,   1),
    TensorType("i16",    25,   1,   2),
    TensorType("i32",    26,   1,   4),
    TensorType("i64",    27,   1,   8),
    TensorType("f64",    28,   1,   8),
    TensorType("iq1_m",  29, 256,  56),
    TensorType("bf16",   30,   1,   2),
    TensorType("tq1_0",  34, 256,  54),
    TensorType("tq2_0",  35, 256,  66),
    TensorType("mxfp4",  39,  32,  17),
    TensorType("nvfp4",  40,  64,  36),
    TensorType("q1_0",   41, 128,  18),
    TensorType("q2_0",   42,  64,  18),
    TensorType("f8_e4m3", FP8_TYPE_ID, 1, 1),
)
# fmt: on

TENSOR_TYPES: Final[dict[int, TensorType]] = {t.id: t for t in _ROWS}
BY_NAME: Final[dict[str, TensorType]] = {t.name: t for t in _ROWS}

# ids that ggml once used and has taken back: no file may hold them
REMOVED_TYPE_IDS: Final[dict[int, str]] = {
    4: "q4_2",
    5: "q4_3",
    31: "q4_0_4_4",
    32: "q4_0_4_8",
    33: "q4_0_8_8",
    36: "iq4_nl_4_4",
    37: "iq4_nl_4_8",
    38: "iq4_nl_8_8",
}

KEY_FP8_VERSION: Final = "pyggml.fp8.version"
KEY_FP8_LAYOUT: Final = "pyggml.fp8.layout"
FP8_VERSION: Final = 1
FP8_LAYOUT: Final = "plain"

# What the marker's version says about the type id. Should ggml give FP8 another id, a new version
# with that id goes here.
FP8_IDS: Final[dict[int, int]] = {FP8_VERSION: FP8_TYPE_ID}


class ForeignFP8(NamedTuple):
    """A layout that other programs store under the id of f8_e4m3."""

    block: int
    bytes: int
    text: str


FOREIGN_FP8: Final = (
    ForeignFP8(32, 34, "32 codes and an f16 scale in blocks of 34 bytes"),
    ForeignFP8(128, 132, "128 codes and an f32 scale in blocks of 132 bytes"),
)

# general.file_type: advice about the most common tensor type, never the truth about a tensor
FILE_TYPES: Final[dict[int, str]] = {
    0: "f32",
    1: "f16",
    2: "q4_0",
    3: "q4_1",
    7: "q8_0",
    8: "q5_0",
    9: "q5_1",
    10: "q2_k",
    11: "q3_k_s",
    12: "q3_k_m",
    13: "q3_k_l",
    14: "q4_k_s",
    15: "q4_k_m",
    16: "q5_k_s",
    17: "q5_k_m",
    18: "q6_k",
    19: "iq2_xxs",
    20: "iq2_xs",
    21: "q2_k_s",
    22: "iq3_xs",
    23: "iq3_xxs",
    24: "iq1_s",
    25: "iq4_nl",
    26: "iq3_s",
    27: "iq3_m",
    28: "iq2_s",
    29: "iq2_m",
    30: "iq4_xs",
    31: "iq1_m",
    32: "bf16",
    36: "tq1_0",
    37: "tq2_0",
    38: "mxfp4_moe",
    39: "nvfp4",
    40: "q1_0",
    41: "q2_0",
    42: "f8_e4m3",
    1024: "guessed",
}
FILE_TYPE_IDS: Final[dict[str, int]] = {name: number for number, name in FILE_TYPES.items()}


def describe_type_id(type_id: int) -> str:
    """Say in a few words what a tensor type id is, for error messages."""
    if type_id in TENSOR_TYPES:
        return f"{TENSOR_TYPES[type_id].name} (id {type_id})"
    if type_id in REMOVED_TYPE_IDS:
        return f"id {type_id} ({REMOVED_TYPE_IDS[type_id]}), which was removed from the format"
    return f"unknown id {type_id}"


def is_alignment(value: int) -> bool:
    """Whether a value may be ``general.alignment``: a u32 power of two, at least 8."""
    return MIN_ALIGNMENT <= value < 1 << 32 and value & (value - 1) == 0


def pad(n: int, alignment: int) -> int:
    """Round n up to a multiple of the alignment."""
    return -(-n // alignment) * alignment
