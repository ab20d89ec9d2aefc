"""Tensor: an array in memory that graphs read and write in place."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.checks import as_ints, as_name, shown
from pyggml.dtypes import DTYPES, DType, f32, f64
from pyggml.dtypes import dtype as as_dtype
from pyggml.errors import DTypeError, OutOfMemoryError, ParameterError, PyggmlError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyggml.dtypes import DTypeLike

_SCALARS = (bool, int, float, np.bool_, np.integer, np.floating)  # numbers without a dtype
_CHECK_ROOM_FROM = 1 << 26  # bytes below which asking the system costs more than it tells


class Tensor:
    """A dense array with a pyggml dtype: weights, caches, constants.

    Made by `pyggml.tensor`, `pyggml.zeros` and `Tensor.from_raw`. Its memory belongs to the numpy
    array (or mapped file) it was made from and is kept alive by it. Used as an operand of a graph
    function it becomes a constant of that graph, captured without a copy, so what is written into
    it later is seen by the next run.
    """

    __slots__ = ("__weakref__", "_bytes", "_dtype", "_name", "_shape")

    def __init__(
        self, data: np.ndarray[Any, Any], dtype: DType, shape: tuple[int, ...], name: str | None
    ) -> None:
        self._bytes = data  # 1-D uint8, the dense bytes of the tensor
        self._dtype = dtype
        self._shape = shape
        self._name = None if name is None else as_name("tensor", name)

    @classmethod
    def from_raw(
        cls, data: Any, shape: int | Sequence[int], dtype: DTypeLike, name: str | None = None
    ) -> Tensor:
        """A tensor over the raw bytes of any dtype, block formats included.

        Shapes: data of as many bytes as the shape takes -> shape.        Dtypes: any.

        Args:
            data: bytes-like object or array holding exactly the tensor's bytes, dense. It is
                copied only when it does not start at a multiple of the element's size.
            shape: numpy order.
            dtype: any pyggml dtype.
            name: shown in messages.

        Raises:
            ShapeError: the byte count does not match, the last axis is not whole blocks, or the
                data is not contiguous.
            ParameterError: data without a buffer, a shape or name that is none.
            DTypeError: an unknown dtype.
        Source: csrc/core/dtype_table.inc for the bytes a block.
        """
        kind = as_dtype(dtype)
        dims = _shape_tuple(shape)
        if isinstance(data, np.ndarray):
            if not data.flags.c_contiguous:
                raise ShapeError("from_raw: the array is not contiguous")
            if data.dtype.hasobject:
                raise ParameterError("from_raw: an array of objects has no bytes of its own")
            raw = np.asarray(data).reshape(-1).view(np.uint8)
        else:
            try:
                raw = np.frombuffer(data, np.uint8)
            except BufferError as e:
                raise ShapeError(f"from_raw: {e}") from None
            except (TypeError, ValueError) as e:  # ValueError: of a closed buffer
                raise ParameterError(f"from_raw: {e}") from None
        expected = _byte_size(dims, kind)
        if raw.size != expected:
            raise ShapeError(
                f"{shown(dims)} {kind.name} takes {shown(expected)} bytes, got {raw.size}"
            )
        if not kind.is_block and raw.ctypes.data % kind.itemsize:
            raw = raw.copy()
        return cls(raw, kind, dims, name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis lengths, numpy order."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The pyggml dtype."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """The name shown in messages."""
        return self._name

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return int(self._bytes.size)

    @property
    def writable(self) -> bool:
        """False for read-only arrays and mapped files."""
        return bool(self._bytes.flags.writeable)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A numpy view of the same memory, which it keeps alive.

        Shapes: the tensor's own.        Dtypes: all but block formats; numpy's own or ml_dtypes'.

        Raises:
            DTypeError: block formats have no elements of their own: `dequantize()` and `raw()` do.
        Source: csrc/core/dtype_table.inc for the numpy dtypes.
        """
        if self._dtype.numpy is None:
            raise DTypeError(
                f"{self._dtype.name} packs {self._dtype.block} elements a block and has no numpy "
                "dtype; use .dequantize() for values or .raw() for bytes"
            )
        return self._bytes.view(self._dtype.numpy).reshape(self._shape)

    def raw(self) -> np.ndarray[Any, Any]:
        """The bytes, a 1-D uint8 view of the same memory.

        Shapes: (nbytes,).        Dtypes: any; the view is uint8.

        Raises: nothing.
        Source: csrc/core/dtype_table.inc for the bytes a block.
        """
        return self._bytes[:]

    def dequantize(self) -> np.ndarray[Any, Any]:
        """The values as a new float32 array; float64 and integers as they are.

        Shapes: the tensor's own.        Dtypes: any.

        Raises:
            OutOfMemoryError: more than the machine or the cgroup has left.
        Source: csrc/formats/, the scalar definition of each format.
        """
        size = self.nbytes if not self._dtype.is_float else 4 * self.size
        with room_for(f"dequantize: {self!r}", size):
            if not self._dtype.is_float:
                return self.numpy().copy()
            out = np.empty(self._shape, np.float32)
        _core.to_f32(self._dtype.id, self._bytes, out.reshape(-1))
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory as a DLPack capsule, which keeps it alive.

        Args:
            stream: None: CPU memory has none.
            max_version: from (1, 0) on the capsule is a versioned one, of version 1.1.
            dl_device: None or (1, 0), CPU memory.
            copy: True gives the consumer memory of its own.

        Raises:
            BufferError: block formats; another device; a read-only tensor when the consumer asks
                for an old capsule, which cannot say that it is.
        """
        from pyggml.dlpack import export

        return export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): CPU memory."""
        return (1, 0)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _SCALARS):
            raise ParameterError("a Tensor is not compared with numbers: .numpy() is")
        return self is other if isinstance(other, Tensor) else NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ParameterError("a Tensor has no truth value: that of its numbers is .numpy()'s")

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d tensor")
        return self._shape[0]

    def __repr__(self) -> str:
        name = f" {self._name!r}" if self._name else ""
        access = "" if self.writable else ", read-only"
        return f"<Tensor{name} {self._shape} {self._dtype.name}, {self.nbytes:,} bytes{access}>"


def _int_tuple(what: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """One number an axis as plain ints, that of one axis may be an int; errors name `what`."""
    dims = tuple(as_ints(what, (shape,) if _is_index(shape) else shape, _core.MAX_DIMS))
    if len(dims) > _core.MAX_DIMS:
        raise ShapeError(f"{what}: at most {_core.MAX_DIMS} axes")
    return dims


def _is_index(value: Any) -> bool:
    """One integer, of Python or numpy, a 0-d array too."""
    try:
        index(value)
    except TypeError:
        return False
    return True


def _node_shape(what: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """As `_int_tuple`, of numbers that C holds."""
    dims = _int_tuple(what, shape)
    if max(map(abs, dims), default=0) >= 1 << 63:
        raise ShapeError(f"{what} {shown(dims)}: an axis passes 64 bits")
    return dims


def _shape_tuple(shape: int | Sequence[int], what: str = "") -> tuple[int, ...]:
    """As `_int_tuple`, of no negative numbers; errors begin with `what`."""
    dims = _int_tuple(f"{what}shape", shape)
    if any(n < 0 for n in dims):
        raise ShapeError(f"{what}shape {shown(dims)}: negative axis")
    return dims


def _byte_size(shape: tuple[int, ...], kind: DType) -> int:
    last = shape[-1] if shape else 1
    if last % kind.block:
        raise ShapeError(
            f"shape {shape}: the last axis must be a multiple of {kind.name}'s block, {kind.block}"
        )
    if 0 in shape and prod(n for n in shape if n) * max(4, kind.itemsize // kind.block) >= 1 << 63:
        raise ShapeError(f"shape {shown(shape)}: numpy has no such array, not even an empty one")
    return prod(shape) // kind.block * kind.itemsize


@contextmanager
def room_for(what: str, size: int) -> Iterator[None]:
    """For allocations of so many bytes together: refused when the machine has not got them."""
    if size >= _CHECK_ROOM_FROM and size > _core.memory_room():
        raise OutOfMemoryError(
            f"{what}: {shown(size)} bytes are needed, {_core.memory_room()} are available"
        )
    try:
        yield
    except MemoryError as e:
        if isinstance(e, OutOfMemoryError):
            raise
        raise OutOfMemoryError(f"{what}: the system refused {size} bytes") from None


def tensor(array: Any, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """A tensor over a numpy array.

    No copy is made when the array is contiguous, native-endian, aligned and already of the dtype;
    its memory is then shared, and the array is kept alive. Otherwise a copy is made.

    Shapes: any of at most 4 axes, kept.
    Dtypes: float32, float16, int32, int64, ml_dtypes.bfloat16 and ml_dtypes.float8_e4m3fn stay
        what they are; so do float64, int8 and int16, which ops only move and cast.

    Args:
        array: numpy array, or anything numpy.asarray takes.
        dtype: converts to this dtype (any float dtype, block formats included); rounds to nearest
            even, F8_E4M3 saturates at +-448. Without it nothing is ever rounded.
        name: shown in messages.

    Raises:
        DTypeError: the array's dtype is none of pyggml's (uint8, bool ...) and no `dtype`
            is given, a conversion from floats to integers, or a masked array.
        ParameterError: a name that is no string.
        ShapeError: more than 4 axes, or a last axis that is not whole blocks.
        OutOfMemoryError: a copy is needed, and the machine has no room for it.
    Source: csrc/formats/, the scalar definition of each format.
    """
    if name is not None:
        name = as_name("tensor", name)
    source = as_array("tensor: ", array)
    _shape_tuple(source.shape, "tensor: ")
    if dtype is None:
        try:
            kind = as_dtype(source.dtype)
        except DTypeError:
            raise DTypeError(
                f"tensor: numpy dtype {source.dtype} has no pyggml dtype; convert it first, or "
                "pass dtype= to have it rounded"
            ) from None
        return _wrap(source, kind, name)
    kind = as_dtype(dtype)
    if kind.is_integer and kind.numpy is not None:
        if source.dtype.kind not in "iub" or not np.can_cast(source.dtype, kind.numpy, "safe"):
            raise DTypeError(f"tensor: {source.dtype} does not convert to {kind.name} exactly")
        if source.dtype == kind.numpy:
            return _wrap(source, kind, name)
        with room_for(f"tensor: {source.shape} as {kind.name}", source.size * kind.itemsize):
            return _wrap(source.astype(kind.numpy), kind, name)
    return _encode(source, kind, name)


def is_masked(value: Any) -> bool:
    """A masked array of numpy, whose module is loaded by whoever makes one, and slowly."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def as_array(what: str, value: Any) -> np.ndarray[Any, Any]:
    """What numpy makes of it: of a subclass, the plain array over the same memory.

    Errors begin with `what`.
    """
    if is_masked(value):
        raise DTypeError(f"{what}a masked array has no pyggml form; see its .filled()")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError) as e:
        if isinstance(e, PyggmlError):
            raise
        raise DTypeError(f"{what}{type(value).__name__} is no array: {e}") from None


def _wrap(source: np.ndarray[Any, Any], kind: DType, name: str | None) -> Tensor:
    order, flags = source.dtype.newbyteorder("="), source.flags
    if source.dtype == order and flags.c_contiguous and flags.aligned:
        dense = source
    else:
        with room_for(f"tensor: a copy of {source.shape} {kind.name}", source.nbytes):
            dense = np.array(source, order, order="C", copy=True)
    raw = dense.reshape(-1).view(np.uint8)
    return Tensor(raw, kind, tuple(source.shape), name)


def _encode(source: np.ndarray[Any, Any], kind: DType, name: str | None) -> Tensor:
    if source.dtype.kind not in "fiub" and source.dtype not in _FLOATS:
        raise DTypeError(f"tensor: {source.dtype} does not convert to {kind.name}")
    if kind.numpy is not None and source.dtype == kind.numpy:
        return _wrap(source, kind, name)
    if kind.is_fixed:
        raise DTypeError(f"tensor: {kind.name} has no encoder; Tensor.from_raw takes its bytes")
    size = _byte_size(source.shape, kind)
    with (
        room_for(f"tensor: {source.shape} as {kind.name}", size + 4 * source.size),
        np.errstate(over="ignore", under="ignore", invalid="ignore"),
    ):
        if kind is f64:
            return _wrap(source.astype(np.float64), kind, name)
        values = source.astype(np.float32) if kind is f32 else _round_to_odd(source)
        values = np.ascontiguousarray(values).reshape(source.shape)
        raw = np.empty(size, np.uint8)
    _core.from_f32(kind.id, values.reshape(-1), raw)
    return Tensor(raw, kind, tuple(source.shape), name)


def _from_numbers(value: Any, kind: DType) -> np.ndarray[Any, Any]:
    """Python numbers or nested lists of them, which have no dtype of their own, as one of `kind`.

    Floats are rounded, as by `tensor`; integers must be exact.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise DTypeError(f"not an array of {kind.name}: {e}") from None
    if array.size == 0:
        return array.astype(kind.numpy)
    if array.dtype.kind not in ("iub" if kind.is_integer else "fiub"):
        raise DTypeError(f"{array.dtype} values are not {kind.name}")
    if not kind.is_integer:
        return tensor(array, dtype=kind).numpy()
    exact = array.astype(kind.numpy)
    if (exact != array).any():
        raise DTypeError(f"a value passes the range of {kind.name}")
    return exact


_FLOATS = tuple(d.numpy for d in DTYPES if d.is_float and d.numpy is not None)


def _round_to_odd(source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values as float32 such that a later rounding to a narrower float is as if done once.

    Wider sources (float64, integers) are truncated and the last bit is set when anything was lost.
    """
    if source.dtype in _FLOATS:
        return source.astype(np.float32)
    wide = _exact_float(source)
    near = wide.astype(np.float32)
    exact = near.astype(wide.dtype) == wide
    finite = np.isfinite(wide)
    too_far = np.abs(near.astype(wide.dtype)) > np.abs(wide)
    down = np.where(too_far, np.nextafter(near, np.float32(0)), near)
    odd = (down.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where(exact | ~finite, near, odd)


def _exact_float(source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values in a float dtype that holds them; integers past 2^53 keep a sticky bit of the rest."""
    if source.dtype.kind == "f":
        return source
    wide = source.astype(np.float64)
    if source.dtype.itemsize < 8:
        return wide
    # Shifts of negative numbers round down: with the last bit set, that is still round to odd.
    folded = (source >> 11) | ((source & 2047) != 0).astype(source.dtype)
    return np.where(np.abs(wide) < 2.0**53, wide, folded.astype(np.float64) * 2048.0)


def zeros(shape: int | Sequence[int], dtype: DTypeLike = f32, name: str | None = None) -> Tensor:
    """A writable tensor of zeros (of zero bytes for block formats, which decode to zeros too).

    Shapes: any of at most 4 axes.        Dtypes: any.

    Args:
        shape: numpy order; an int is a shape of one axis.
        dtype: any pyggml dtype.
        name: shown in messages.

    Raises:
        OutOfMemoryError: more than the machine or the cgroup has left.
        ShapeError: a negative axis, too many, or a last axis that is not whole blocks.
        ParameterError: a shape of other than integers, a name that is no string.
        DTypeError: an unknown dtype.
    Source: csrc/core/dtype_table.inc for the bytes a block.
    """
    kind = as_dtype(dtype)
    dims = _shape_tuple(shape)
    size = _byte_size(dims, kind)
    with room_for(f"zeros: {shown(dims)} {kind.name}", size):
        # One spare cache line so that the data can start on a 64-byte border.
        base = np.zeros(size + 64, np.uint8)
    skip = -base.ctypes.data % 64
    return Tensor(base[skip : skip + size], kind, dims, name)
