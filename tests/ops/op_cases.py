"""One case an op: operands, oracle and what may be cut; test_every_op.py runs each through all.

Ops of one operand that keep its shape need none: test_unary.py takes them from pyggml/ops/unary.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ops.check import rand

import pyggml as pg
from oracles import (
    attention,
    elementwise,
    join,
    matmul,
    norm,
    reduce,
    region,
    rope,
    rows,
    softmax,
    sort,
    transform,
)

ops = pg.ops
IDS = np.array([4, 0, 8, 2, 2], np.int32)
MASK = np.where(np.arange(70) < np.array([[60], [65], [70]]), 0.0, -np.inf)


@dataclass
class OpCase:
    """Arguments of `check_op`; block formats are tried where `blocks` is set. `refuses` are the
    layouts that the op does not take, by a ShapeError.
    """

    fn: Callable[..., pg.Node]
    arrays: list[Any]
    oracle: Callable[..., Any]
    more: dict[str, Any] = field(default_factory=dict)
    blocks: bool = True
    refuses: tuple[str, ...] = ()


def same(x, *others):
    """What a view or a copy of x holds."""
    return x


def binary(name: str) -> OpCase:
    """Two operands of one shape; the first axis of the second may broadcast."""
    arrays = [rand(5, 3, 64, seed=1), rand(5, 3, 64, seed=2)]
    if name == "div":
        arrays[1] = np.sign(arrays[1]) * (np.abs(arrays[1]) + 3.0)
    more = {"broadcast": {1: 0}}
    return OpCase(getattr(ops, name), arrays, getattr(elementwise, name), more)


def gated(name: str) -> OpCase:
    """A gated unit of two operands."""
    arrays = [rand(5, 3, 64, seed=1), rand(5, 3, 64, seed=2)]
    return OpCase(getattr(ops, name), arrays, getattr(elementwise, name))


def by_rows(name: str, module: Any, **params: Any) -> OpCase:
    """One operand, the last axis at a time."""
    more = {"params": params, "limit": 0} if module is sort else {"params": params}
    return OpCase(getattr(ops, name), [rand(5, 3, 64)], getattr(module, name), more)


def twice(x):
    """Twice the rows of x."""
    return 2 * x.shape[0], *x.shape[1:]


CASES = {
    # views; block formats cannot be cut or turned along their last axis
    "view": OpCase(lambda x: x[::2, 1:], [rand(5, 3, 64)], lambda x: x[::2, 1:]),
    "reshape": OpCase(
        lambda x: ops.reshape(x, (x.shape[0] * 3, 64)),
        [rand(5, 3, 64)],
        lambda x: x.reshape(x.shape[0] * 3, 64),
    ),
    "permute": OpCase(
        lambda x: ops.permute(x, (1, 0, 2)), [rand(5, 3, 64)], lambda x: x.transpose(1, 0, 2)
    ),
    "transpose": OpCase(ops.transpose, [rand(5, 37)], np.transpose, blocks=False),
    # copies and writes; what is written is a copy, so that the runs do not see each other
    "cont": OpCase(ops.cont, [rand(5, 3, 64)], same),
    "cast": OpCase(lambda x: ops.cast(x, "f16"), [rand(5, 3, 64)], same),
    "cpy": OpCase(
        lambda x, dst: ops.cpy(x, ops.cont(dst)), [rand(5, 3, 64), rand(5, 3, 64, seed=1)], same
    ),
    "set_rows": OpCase(
        lambda dst, x, ids: ops.set_rows(ops.cont(dst), x, ids),
        [rand(9, 64), rand(4, 64, seed=1), np.array([8, 0, 3, 5])],
        rows.set_rows,
        {"rows": {1: 0, 2: 0}},
    ),
    "acc": OpCase(
        lambda dst, x: ops.acc(ops.cont(dst), x, start=(1, 0, 0)),
        [rand(6, 3, 64), rand(4, 3, 64, seed=1)],
        lambda dst, x: region.acc(dst, x, (1, 0, 0)),
        {"rows": {1: 0}},
    ),
    "set": OpCase(
        lambda dst, x: ops.set(ops.cont(dst), x, start=(1, 0, 0)),
        [rand(6, 3, 64), rand(4, 3, 64, seed=1)],
        lambda dst, x: region.set(dst, x, (1, 0, 0)),
        {"rows": {1: 0}},
    ),
    "concat": OpCase(ops.concat, [rand(5, 3, 64), rand(5, 3, 32, seed=1)], join.concat),
    "repeat": OpCase(
        lambda x: ops.repeat(x, twice(x)), [rand(5, 3, 64)], lambda x: join.repeat(x, twice(x))
    ),
    "pad": OpCase(
        ops.pad, [rand(5, 3, 64)], join.pad, {"params": {"after": (1, 0, 32), "before": (0, 1, 0)}}
    ),
    # rows by index
    "get_rows": OpCase(ops.get_rows, [rand(9, 64), IDS], rows.get_rows, {"rows": {1: 0}}),
    "add_id": OpCase(
        ops.add_id,
        [rand(5, 64), rand(9, 64, seed=1), IDS],
        rows.add_id,
        {"rows": {0: 0, 2: 0}},
    ),
    # elementwise
    **{name: binary(name) for name in ("add", "sub", "mul", "div")},
    "add1": OpCase(ops.add1, [rand(5, 3, 64), rand(1)], elementwise.add1, {"vary": [0]}),
    **{name: gated(name) for name in ("swiglu", "geglu", "geglu_erf", "geglu_quick", "reglu")},
    # rows
    **{name: by_rows(name, norm, eps=1e-5) for name in ("rms_norm", "norm", "l2_norm")},
    **{name: by_rows(name, reduce) for name in ("sum", "sum_rows", "mean", "cumsum")},
    "argmax": OpCase(ops.argmax, [rand(5, 3, 64)], reduce.argmax, {"limit": 0}),
    "argsort": by_rows("argsort", sort, order="desc"),
    "top_k": by_rows("top_k", sort, k=7),
    "fwht": by_rows("fwht", transform),
    "rope": OpCase(
        ops.rope,
        [rand(6, 3, 64), np.arange(6, dtype=np.int32) * 37],
        rope.rope_norm,
        {"vary": [0], "rows": {0: 0, 1: 0}},
    ),
    "diag_mask_inf": by_rows("diag_mask_inf", softmax, n_past=2),
    "soft_max": OpCase(
        ops.soft_max,
        [rand(4, 3, 64), rand(3, 64, seed=1)],
        softmax.soft_max,
        {"vary": [0], "rows": {0: 0}, "broadcast": {1: 0}},
    ),
    # products
    "out_prod": OpCase(
        ops.out_prod,
        [rand(2, 5, 32), rand(2, 5, 64, seed=1)],
        matmul.out_prod,
        {"rows": {0: 1, 1: 1}, "broadcast": {0: 0}},
    ),
    "mul_mat": OpCase(
        ops.mul_mat,
        [rand(2, 33, 64), rand(2, 7, 64, seed=1)],
        matmul.mul_mat,
        {"rows": {1: 1}, "broadcast": {0: 0}},
    ),
    "mul_mat_id": OpCase(
        ops.mul_mat_id,
        [rand(9, 33, 64), rand(5, 1, 64, seed=1), np.stack([IDS, IDS[::-1]], axis=1)],
        matmul.mul_mat_id,
        {"rows": {1: 0, 2: 0}},
    ),
    "flash_attn_ext": OpCase(
        ops.flash_attn_ext,
        [rand(1, 4, 3, 64), rand(1, 2, 70, 64, seed=1), rand(1, 2, 70, 64, seed=2), MASK],
        attention.flash_attn_ext,
        {"vary": [1, 2], "rows": {0: 2, 3: 0}, "params": {"scale": 0.125}, "limit": 1e-5},
        refuses=("strided", "permuted"),  # rows of K and V lie whole in memory; test_attention.py
    ),
}
