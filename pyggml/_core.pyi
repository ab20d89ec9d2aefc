"""Types of the extension module, by hand; `mypy.stubtest pyggml._core` compares them with it."""

import sys
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, final

import numpy as np
from typing_extensions import Buffer

from pyggml.checks import as_bool as as_bool
from pyggml.checks import as_int as as_int
from pyggml.checks import shown as shown
from pyggml.errors import STATUS as STATUS

MAX_DIMS: Final[int]
MAX_THREADS: Final[int]
MAX_OUTPUTS: Final[int]
MAX_NAME: Final[int]
NODE_INPUT: Final[int]
NODE_CONST: Final[int]
UNPLANNED: Final[int]
GUARDED: Final[int]
DLPACK_VERSION: Final[tuple[int, int]]

# typing knows the buffer protocol from Python 3.12 on only
_Buffer: TypeAlias = Buffer | np.ndarray[Any, Any]
_Kind: TypeAlias = Literal["i64", "f32", "bool", "enum", "dtype", "per_axis", "axes"]

KINDS: Final[dict[int, _Kind]]

class _Param(TypedDict):
    name: str
    kind: _Kind
    default: float | None
    low: float
    high: float
    choices: tuple[str, ...]

class _OpRow(TypedDict):
    name: str
    operands: tuple[str, ...]
    optional: tuple[str, ...]
    index: tuple[str, ...]
    view: bool
    write: bool
    params: tuple[_Param, ...]

class NodeInfo(NamedTuple):
    op: int
    name: str
    shape: tuple[int, ...]
    dtype: int
    src: tuple[int, ...]
    root: int
    writable: bool

class _Counters(TypedDict):
    allocations: int
    live: int
    nodes: int
    programs: int

class _KeptNode(TypedDict):
    id: int
    op: int
    name: str
    shape: tuple[int, ...]
    dtype: int
    block: int
    block_offset: int
    block_bytes: int
    first: int
    last: int
    offset: int
    bytes: int
    moved_bytes: float
    flops: float
    runs: int
    ns: int

class _Memory(TypedDict):
    results: int
    shared: int
    scratch: int
    arena: int
    constants: int

def dtype_table() -> tuple[tuple[str, int, int, int, int, str], ...]: ...
def op_table() -> tuple[_OpRow, ...]: ...
def isa() -> str: ...
def isas() -> tuple[str, ...]: ...
def kernel_slots() -> tuple[str, ...]: ...
def kernel_address(isa: str, slot: str) -> int: ...
def counters() -> _Counters: ...
def alloc_fail_in(n: int) -> None: ...
def memory_room() -> int: ...
def default_threads() -> int: ...
def pool_workers() -> int: ...
def to_f32(dtype: int, src: _Buffer, dst: _Buffer) -> None: ...
def from_f32(dtype: int, src: _Buffer, dst: _Buffer) -> None: ...
def dlpack_export(
    data: _Buffer, shape: Sequence[int], code: int, bits: int, versioned: bool, copied: bool
) -> Any: ...

@final
class DLPackMemory:
    def __new__(cls, capsule: Any) -> DLPackMemory: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> tuple[int, int, int]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...] | None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    def take(self) -> None: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Graph:
    def __len__(self) -> int: ...
    def input(self, name: str, dtype: int, shape: Sequence[int]) -> int: ...
    def const(
        self, buffer: _Buffer, dtype: int, shape: Sequence[int], name: str, writable: bool
    ) -> int: ...
    def op(self, op: int, srcs: Sequence[int], params: dict[str, Any]) -> int: ...
    def truncate(self, n_nodes: int) -> None: ...
    def set_name(self, node: int, name: str) -> None: ...
    def node(self, node: int) -> NodeInfo: ...

@final
class AllOrNone:
    def __init__(self, graph: object) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, *_: object) -> None: ...

@final
class Arena:
    @property
    def nbytes(self) -> int: ...

@final
class Program:
    def __new__(
        cls,
        graph: Graph,
        outputs: Sequence[int],
        threads: int,
        arena: Arena | None,
        flags: int = 0,
    ) -> Program: ...
    @property
    def inputs(self) -> tuple[int, ...]: ...
    @property
    def threads(self) -> int: ...
    @property
    def n_nodes(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    def nodes(self) -> list[_KeptNode]: ...
    def memory(self) -> _Memory: ...
    def run(self, inputs: Sequence[_Buffer], outputs: Sequence[_Buffer]) -> None: ...
    def profile(
        self, inputs: Sequence[_Buffer], outputs: Sequence[_Buffer], runs: int
    ) -> list[_KeptNode]: ...

def measure_peak(threads: int) -> tuple[float, float]: ...
