"""DLPack: tensors to and from other libraries without a copy."""

from __future__ import annotations

from typing import Any, Final

from pyggml import _core
from pyggml.checks import as_ints, shown
from pyggml.dtypes import DTYPES, DType
from pyggml.errors import DTypeError, ParameterError, ShapeError
from pyggml.tensor import Tensor, is_masked

_CPU: Final = 1  # kDLCPU of dlpack.h

# DLDataTypeCode of dlpack.h 1.1, by numpy's name for the dtype without its bits.
_CODES: Final = {
    "int": 0,
    "uint": 1,
    "float": 2,
    "opaque": 3,
    "bfloat": 4,
    "complex": 5,
    "bool": 6,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
    "float6_e2m3fn": 15,
    "float6_e3m2fn": 16,
    "float4_e2m1fn": 17,
}
_NAMES: Final = {code: name for name, code in _CODES.items()}


def _dl_types() -> dict[DType, tuple[int, int]]:
    """(code, bits) of each dtype that has elements."""
    types = {}
    for kind in DTYPES:
        if kind.numpy is not None:
            name = kind.numpy.name
            code = _CODES[name if name in _CODES else name.rstrip("0123456789")]
            types[kind] = (code, 8 * kind.itemsize)
    return types


_TO_DL: Final = _dl_types()
_FROM_DL: Final = {dl_type: kind for kind, dl_type in _TO_DL.items()}


def from_dlpack(x: Any, name: str | None = None) -> Tensor:
    """A tensor over the memory of another library's array, which it keeps alive.

    What is written on either side is seen on the other. A capsule of the old, unversioned kind
    does not say whether its memory may be written; the tensor is read-only then, as numpy's is.

    Shapes: x at most 4 axes, dense (C order).
    Dtypes: all that have elements: f32, f16, bf16, f8_e4m3 (DLPack's float8_e4m3fn), f64 and the
        integers; no block formats.

    Args:
        x: an object with `__dlpack__` and `__dlpack_device__`, in CPU memory.
        name: shown in messages.

    Raises:
        TypeError: x does not speak DLPack.
        BufferError: x is not in CPU memory, its owner does not export it, its capsule was taken
            before or contradicts itself.
        DTypeError: a dtype that pyggml has not got.
        ShapeError: x is not dense or not aligned, so that sharing is not possible; or more than
            4 axes.

    Source: the Python specification of DLPack, and dlpack.h 1.1.
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"from_dlpack: {type(x).__name__} has no __dlpack__")
    if is_masked(x):
        raise DTypeError("from_dlpack: a masked array has no pyggml form; see its .filled()")
    device = x.__dlpack_device__()
    if not isinstance(device, tuple):
        raise BufferError(f"from_dlpack: the device is a tuple, got {shown(device)}")
    _check_device(device)
    try:
        capsule = x.__dlpack__(max_version=_core.DLPACK_VERSION)
    except TypeError:  # from before there were versions
        capsule = x.__dlpack__()
    try:
        memory = _core.DLPackMemory(capsule)
    except (BufferError, ShapeError, TypeError) as e:
        raise type(e)(f"from_dlpack: {e}") from None
    kind = _check(memory)
    memory.take()
    return Tensor.from_raw(memory, memory.shape, kind, name)


def _check_device(device: tuple[int, ...]) -> None:
    if not device or device[0] != _CPU:
        raise BufferError(f"from_dlpack: CPU memory is needed, this is on device {device}")


def _check(memory: _core.DLPackMemory) -> DType:
    """The dtype of what a capsule describes; refuses what cannot be shared."""
    _check_device(memory.device)
    code, bits, lanes = memory.dtype
    kind = _FROM_DL.get((code, bits))
    if kind is None or lanes != 1:
        name = _NAMES.get(code, "unknown")
        raise DTypeError(
            f"from_dlpack: pyggml has no dtype for DLPack's {name} (code {code}) of {bits} bits, "
            f"{lanes} lanes"
        )
    step = 1
    for n, stride in reversed(list(zip(memory.shape, memory.strides or (), strict=False))):
        if n > 1 and stride != step and memory.nbytes > 0:
            raise ShapeError(
                f"from_dlpack: {memory.shape} with strides {memory.strides} is not dense; make it "
                "contiguous first"
            )
        step *= n
    if memory.nbytes > 0 and memory.address % kind.itemsize:
        raise ShapeError(f"from_dlpack: memory that is not aligned for {kind.name}")
    return kind


def _pair(what: str, value: Any) -> tuple[int, ...]:
    """Two integers: a version, or a device."""
    numbers = tuple(as_ints(f"__dlpack__: {what}", value, 2))
    if len(numbers) != 2:
        raise ParameterError(f"__dlpack__: {what}: two integers expected, got {shown(value)}")
    return numbers


def export(t: Tensor, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """The capsule for `Tensor.__dlpack__`."""
    if t.dtype not in _TO_DL:
        raise BufferError(
            f"{t.dtype.name} does not pass through DLPack; .raw() gives the bytes, .dequantize() "
            "float32 values"
        )
    if stream is not None:
        raise BufferError(f"CPU memory has no streams, so stream must be None, got {shown(stream)}")
    if dl_device is not None and _pair("dl_device", dl_device) != t.__dlpack_device__():
        raise BufferError(
            f"a tensor is in CPU memory, device (1, 0), got dl_device={shown(dl_device)}"
        )
    wants = (0, 0) if max_version is None else _pair("max_version", max_version)
    versioned = wants[0] >= _core.DLPACK_VERSION[0]
    data = t.raw().copy() if copy else t.raw()
    return _core.dlpack_export(data, t.shape, *_TO_DL[t.dtype], versioned, bool(copy))
