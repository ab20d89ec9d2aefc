"""The exceptions of pyggml.

Every class is a `PyggmlError` and, where Python has a fitting one, that builtin too, so that both
`except pyggml.ShapeError` and `except ValueError` work. `STATUS` joins them to the status names of
csrc/core/status_table.inc.
"""

from __future__ import annotations


class PyggmlError(Exception):
    """Base class of every error that pyggml raises on purpose."""


class ShapeError(PyggmlError, ValueError):
    """Shapes, strides or axes that do not fit the operation."""


class DTypeError(PyggmlError, TypeError):
    """A dtype that the operation or container has no meaning for."""


class ParameterError(PyggmlError, ValueError):
    """An operator parameter or an argument that is out of its range."""


class GraphError(PyggmlError, ValueError):
    """Nodes of two graphs mixed, an unknown input, a Program run twice at once."""


class ReadOnlyError(PyggmlError, ValueError):
    """A write into memory that is read-only (a mapped file, a read-only array)."""


class RowIndexError(PyggmlError, IndexError):
    """A row index met at run time that is outside the table."""


class OutOfMemoryError(PyggmlError, MemoryError):
    """Memory was refused, or asking for it would pass what the machine has left."""


class CancelledError(PyggmlError):
    """A run was stopped between two nodes; no result was written."""


class InternalError(PyggmlError, RuntimeError):
    """A state that should not be reachable: please report it."""


class GGUFError(PyggmlError, ValueError):
    """A GGUF file that is malformed, truncated or of an unsupported kind."""


class ModelError(PyggmlError, ValueError):
    """A well-formed file that is not a usable model: missing or misshapen tensors, bad scales."""


class TokenizerError(PyggmlError, ValueError):
    """A vocabulary or a text that the tokenizer cannot use."""


class ChatTemplateError(PyggmlError, ValueError):
    """A chat template that failed to render, or messages it cannot take."""


class SamplingError(PyggmlError, ValueError):
    """Sampling parameters out of range, or logits that cannot be sampled from."""


class ContextError(PyggmlError, ValueError):
    """A prompt or a request that does not fit the context."""


class InstructionSetError(PyggmlError, ImportError):
    """PYGGML_ISA names no instruction set that this machine has; `import pyggml` raises it."""


STATUS: dict[str, type[PyggmlError]] = {
    "shape": ShapeError,
    "dtype": DTypeError,
    "param": ParameterError,
    "graph": GraphError,
    "read_only": ReadOnlyError,
    "index": RowIndexError,
    "no_memory": OutOfMemoryError,
    "cancelled": CancelledError,
    "internal": InternalError,
}
