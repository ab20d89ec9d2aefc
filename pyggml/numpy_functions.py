"""numpy's own functions on nodes: `np.exp(x)` and `np.sum(x)` build what `ops` and methods do."""

from __future__ import annotations

from functools import reduce
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _core
from pyggml.call import binary, call_op, shape_of
from pyggml.checks import as_axis
from pyggml.errors import GraphError
from pyggml.node import Node
from pyggml.ops.join import concat

if TYPE_CHECKING:
    from collections.abc import Callable

_BINARY: dict[Any, str] = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.divide: "div",
    np.matmul: "matmul",
}
_UNARY: dict[Any, str] = {
    np.absolute: "abs",
    np.cos: "cos",
    np.exp: "exp",
    np.log: "log",
    np.negative: "neg",
    np.sin: "sin",
    np.sqrt: "sqrt",
    np.square: "sqr",
    np.tanh: "tanh",
}
# numpy functions whose first argument is the array and that Node has as a method
_METHODS = (
    "argmax",
    "argsort",
    "clip",
    "copy",
    "cumsum",
    "dot",
    "mean",
    "ravel",
    "reshape",
    "squeeze",
    "sum",
    "swapaxes",
    "take",
    "transpose",
)
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{getattr(np, name): getattr(Node, name) for name in _METHODS},
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.concatenate: lambda arrays, axis=0: _concatenate(arrays, axis),
}
# what does the work of a function that has no op
_INSTEAD: dict[Any, str] = {
    np.maximum: "x.clip(min=...) or ops.relu",
    np.minimum: "x.clip(max=...)",
    np.vdot: "(a * b).sum()",
    np.outer: "ops.out_prod",
    np.tile: "ops.repeat",
    np.pad: "ops.pad",
}


def _concatenate(arrays: Any, axis: int = 0) -> Node:
    """Numpy's concatenate, by which only ops.concat differs in its default axis."""
    arrays = list(arrays)
    as_axis("concatenate", axis, len(shape_of("concatenate", "arrays[0]", arrays[0])))
    with _core.AllOrNone(next(a.graph for a in arrays if isinstance(a, Node))):
        whole: Node = reduce(lambda a, b: concat(a, b, axis), arrays)
        return whole


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """See numpy's `__array_ufunc__`."""
    if method != "__call__" or ufunc not in _BINARY | _UNARY:
        raise TypeError(_no_op(_name(ufunc, method), ufunc))
    if kwargs:
        raise TypeError(
            f"numpy's {ufunc.__name__} on a node takes no {', '.join(kwargs)}: it makes a node"
        )
    if ufunc in _UNARY:
        return call_op(_UNARY[ufunc], inputs[0])
    return binary(_BINARY[ufunc], *inputs)


def _name(ufunc: Any, method: str) -> str:
    return ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"


def _no_op(name: str, function: Any) -> str:
    return f"numpy's {name} has no op on nodes; see {_INSTEAD.get(function, 'pyggml.ops')}"


def call_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """See numpy's `__array_function__`."""
    known = _FUNCTIONS.get(function)
    if known is None:
        raise TypeError(_no_op(function.__name__, function))
    try:
        signature(known).bind(*args, **kwargs)
    except TypeError as e:
        raise TypeError(f"numpy's {function.__name__} on a node: {e}") from None
    if function is not np.concatenate and (not args or not isinstance(args[0], Node)):
        raise GraphError(f"numpy's {function.__name__}: the first argument is to be the node")
    return known(*args, **kwargs)
