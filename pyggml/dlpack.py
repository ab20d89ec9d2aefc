"""DLPack: tensors to and from other libraries without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyggml.errors import DTypeError, ShapeError
from pyggml.tensor import Tensor, tensor

_CPU = 1  # kDLCPU of dlpack.h


def from_dlpack(x: Any, name: str | None = None) -> Tensor:
    """A tensor over the memory of another library's array, which it keeps alive.

    What is written on either side is seen on the other.

    Shapes: x at most 4 axes, dense (C order).
    Dtypes: those that both numpy's DLPack and pyggml have (f32, f16, i32, i64 ...); bf16 and
        f8_e4m3 come in as bytes, through `Tensor.from_raw`.

    Args:
        x: an object with `__dlpack__` and `__dlpack_device__`, in CPU memory.
        name: shown in messages.

    Raises:
        TypeError: x does not speak DLPack.
        BufferError: x is not in CPU memory, or its owner does not export it.
        DTypeError: a dtype that numpy or pyggml has not got.
        ShapeError: x is not dense, so that sharing is not possible; or more than 4 axes.

    Source: the Python specification of DLPack; the capsule is read by numpy.
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"from_dlpack: {type(x).__name__} has no __dlpack__")
    device = tuple(x.__dlpack_device__())
    if device[0] != _CPU:
        raise BufferError(f"from_dlpack: CPU memory is needed, this is on device {device}")
    try:
        array = np.from_dlpack(x)
    except RuntimeError as e:  # numpy's for a dtype it has not got, and for too many axes
        raise DTypeError(f"from_dlpack: {e}") from None
    if not array.flags.c_contiguous:
        raise ShapeError("from_dlpack: the array is not dense; make it contiguous first")
    shared = tensor(array, name)
    if array.size and not np.shares_memory(shared.raw(), array):
        raise ShapeError(f"from_dlpack: memory that is not aligned for {array.dtype}")
    return shared


def export(t: Tensor, options: dict[str, Any]) -> Any:
    """The capsule for `Tensor.__dlpack__`."""
    if t.dtype.numpy is None or t.dtype.numpy.kind not in "fiu":
        raise BufferError(
            f"{t.dtype.name} does not pass through DLPack; .raw() gives the bytes, .dequantize() "
            "float32 values"
        )
    # Older numpy versions know fewer options.
    given = {key: value for key, value in options.items() if value is not None}
    return t.numpy().__dlpack__(**given)
