"""GGUF files: reading (`GGUFFile`), writing (`GGUFWriter`) and the format's constants."""

from pyggml.gguf.constants import (
    BY_NAME,
    FILE_TYPES,
    TENSOR_TYPES,
    TensorType,
    ValueType,
)
from pyggml.gguf.metadata import Metadata
from pyggml.gguf.reader import GGUFFile, TensorInfo
from pyggml.gguf.writer import GGUFWriter

__all__ = [
    "BY_NAME",
    "FILE_TYPES",
    "TENSOR_TYPES",
    "GGUFFile",
    "GGUFWriter",
    "Metadata",
    "TensorInfo",
    "TensorType",
    "ValueType",
]
