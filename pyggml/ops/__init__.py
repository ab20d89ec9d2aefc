"""The ops: one documented function each, which adds a node to the graph of its operands.

Names are ggml's, shapes and axes are numpy's. Operands may be nodes, Tensors, numpy arrays or
Python numbers and lists of them; at least one must be a node, which says what graph is meant (else
`GraphError`). Wrong shapes, dtypes and parameters raise here, not when the Program runs. A `dtype`
is the result's.

Each file is a family and lists its functions in `__all__`; what the files list is public here.
docs/add_an_op.md tells how to add one.
"""

from types import FunctionType as _FunctionType

from pyggml.ops.attention import *
from pyggml.ops.copy import *
from pyggml.ops.elementwise import *
from pyggml.ops.join import *
from pyggml.ops.matmul import *
from pyggml.ops.norm import *
from pyggml.ops.reduce import *
from pyggml.ops.region import *
from pyggml.ops.rope import *
from pyggml.ops.rows import *
from pyggml.ops.soft_max import *
from pyggml.ops.sort import *
from pyggml.ops.transform import *
from pyggml.ops.unary import *
from pyggml.ops.views import *

# Every family's list; some families share their name with a function, so none is asked for it.
__all__ = sorted(name for name, value in globals().items() if isinstance(value, _FunctionType))


def __dir__() -> list[str]:
    """The ops, without the files that they are in."""
    return __all__
