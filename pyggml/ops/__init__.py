"""The ops: one documented function each, which adds a node to the graph of its operands.

Names are ggml's, shapes and axes are numpy's. Operands may be nodes, Tensors, numpy arrays or
Python scalars; at least one must be a node, which says what graph is meant. Wrong shapes, dtypes
and parameters raise here, not when the Program runs.

To add an op: a row in csrc/ops/op_table.inc, its C functions, and a function in one of these files.
"""

from pyggml.ops.attention import flash_attn_ext
from pyggml.ops.copy import cast, cont, cpy, dup
from pyggml.ops.elementwise import add, div, mul, scale, silu, sub, swiglu
from pyggml.ops.join import concat, pad, repeat
from pyggml.ops.matmul import matmul, mul_mat
from pyggml.ops.norm import rms_norm
from pyggml.ops.reduce import argmax, cumsum, mean, sum, sum_rows
from pyggml.ops.rope import rope
from pyggml.ops.rows import get_rows, set_rows
from pyggml.ops.softmax import soft_max
from pyggml.ops.sort import argsort, top_k
from pyggml.ops.views import permute, reshape, transpose, view

__all__ = [
    "add",
    "argmax",
    "argsort",
    "cast",
    "concat",
    "cont",
    "cpy",
    "cumsum",
    "div",
    "dup",
    "flash_attn_ext",
    "get_rows",
    "matmul",
    "mean",
    "mul",
    "mul_mat",
    "pad",
    "permute",
    "repeat",
    "reshape",
    "rms_norm",
    "rope",
    "scale",
    "set_rows",
    "silu",
    "soft_max",
    "sub",
    "sum",
    "sum_rows",
    "swiglu",
    "top_k",
    "transpose",
    "view",
]
