"""The ops: one documented function each, which adds a node to the graph of its operands.

Names are ggml's, shapes and axes are numpy's. Operands may be nodes, Tensors, numpy arrays or
Python scalars; at least one must be a node, which says what graph is meant. Wrong shapes, dtypes
and parameters raise here, not when the Program runs.

To add an op: a row in csrc/ops/op_table.inc, its C functions, and a function in one of these files.
"""

from pyggml.ops.attention import flash_attn_ext
from pyggml.ops.copy import cast, cont, cpy, dup
from pyggml.ops.elementwise import (
    add,
    add1,
    div,
    geglu,
    geglu_erf,
    geglu_quick,
    mul,
    reglu,
    sub,
    swiglu,
)
from pyggml.ops.join import concat, pad, repeat
from pyggml.ops.matmul import matmul, mul_mat, mul_mat_id, out_prod
from pyggml.ops.norm import l2_norm, norm, rms_norm
from pyggml.ops.reduce import argmax, cumsum, mean, sum, sum_rows
from pyggml.ops.region import acc, set
from pyggml.ops.rope import rope
from pyggml.ops.rows import add_id, get_rows, set_rows
from pyggml.ops.soft_max import diag_mask_inf, soft_max
from pyggml.ops.sort import argsort, top_k
from pyggml.ops.transform import fwht
from pyggml.ops.unary import (
    abs,
    clamp,
    cos,
    exp,
    gelu,
    gelu_erf,
    gelu_quick,
    leaky_relu,
    log,
    neg,
    relu,
    scale,
    sigmoid,
    silu,
    sin,
    softplus,
    sqr,
    sqrt,
    step,
    tanh,
)
from pyggml.ops.views import permute, reshape, transpose, view

__all__ = [
    "abs",
    "acc",
    "add",
    "add1",
    "add_id",
    "argmax",
    "argsort",
    "cast",
    "clamp",
    "concat",
    "cont",
    "cos",
    "cpy",
    "cumsum",
    "diag_mask_inf",
    "div",
    "dup",
    "exp",
    "flash_attn_ext",
    "fwht",
    "geglu",
    "geglu_erf",
    "geglu_quick",
    "gelu",
    "gelu_erf",
    "gelu_quick",
    "get_rows",
    "l2_norm",
    "leaky_relu",
    "log",
    "matmul",
    "mean",
    "mul",
    "mul_mat",
    "mul_mat_id",
    "neg",
    "norm",
    "out_prod",
    "pad",
    "permute",
    "reglu",
    "relu",
    "repeat",
    "reshape",
    "rms_norm",
    "rope",
    "scale",
    "set",
    "set_rows",
    "sigmoid",
    "silu",
    "sin",
    "soft_max",
    "softplus",
    "sqr",
    "sqrt",
    "step",
    "sub",
    "sum",
    "sum_rows",
    "swiglu",
    "tanh",
    "top_k",
    "transpose",
    "view",
]
