"""pyggml: a tensor runtime in C with a Python graph API, for language models on CPUs."""

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from pyggml.errors import InstructionSetError
from pyggml.startup import is_command

try:
    from pyggml._core import Arena, counters, isa, isas
except InstructionSetError as e:
    if not is_command():
        raise
    print(f"error: {e}", file=sys.stderr)  # the command's own code is not imported yet
    sys.exit(2)
except ModuleNotFoundError as e:
    if e.name != "pyggml._core":
        raise
    raise ImportError(
        "the C extension of pyggml is not built; in a checkout run: pip install -e ."
    ) from e

from pyggml import ops
from pyggml.dlpack import from_dlpack
from pyggml.dtypes import (
    DType,
    bf16,
    dtype,
    f8_e4m3,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    iq4_nl,
    iq4_xs,
    mxfp4,
    nvfp4,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
)
from pyggml.errors import (
    CancelledError,
    ChatTemplateError,
    ContextError,
    DTypeError,
    GGUFError,
    GraphError,
    InternalError,
    ModelError,
    OutOfMemoryError,
    ParameterError,
    PyggmlError,
    ReadOnlyError,
    RowIndexError,
    SamplingError,
    ShapeError,
    TokenizerError,
)
from pyggml.graph import Graph, Node, Program
from pyggml.profile import MemoryPlan, Profile
from pyggml.tensor import Tensor, tensor, zeros

if TYPE_CHECKING:
    from pyggml.llm.model import Llama

__all__ = [
    "Arena",
    "CancelledError",
    "ChatTemplateError",
    "ContextError",
    "DType",
    "DTypeError",
    "GGUFError",
    "Graph",
    "GraphError",
    "InstructionSetError",
    "InternalError",
    "Llama",
    "MemoryPlan",
    "ModelError",
    "Node",
    "OutOfMemoryError",
    "ParameterError",
    "Profile",
    "Program",
    "PyggmlError",
    "ReadOnlyError",
    "RowIndexError",
    "SamplingError",
    "ShapeError",
    "Tensor",
    "TokenizerError",
    "__version__",
    "bf16",
    "counters",
    "dtype",
    "f8_e4m3",
    "f16",
    "f32",
    "f64",
    "from_dlpack",
    "i8",
    "i16",
    "i32",
    "i64",
    "iq4_nl",
    "iq4_xs",
    "isa",
    "isas",
    "mxfp4",
    "nvfp4",
    "ops",
    "q2_k",
    "q3_k",
    "q4_0",
    "q4_1",
    "q4_k",
    "q5_0",
    "q5_1",
    "q5_k",
    "q6_k",
    "q8_0",
    "tensor",
    "zeros",
]


def __getattr__(name: str) -> Any:
    # The model side is imported when it is first asked for: graphs need none of it.
    if name == "Llama":
        from pyggml.llm.model import Llama

        return Llama
    raise AttributeError(f"module 'pyggml' has no attribute {name!r}")


try:
    __version__ = version("pyggml")
except PackageNotFoundError:  # an unpacked source tree that was never installed
    __version__ = "0+unknown"
