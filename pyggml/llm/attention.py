"""Attention over the KV cache, with the scale nodes of an FP8 cache around it.

    Q' = Q * sk      K' = K / sk   (stored)      so  Q' . K' = Q . K
    V' = V / sv      (stored)      out = MHA(Q', K', V') * sv

The nodes are inserted after RoPE and before the cache write, on the sides that have a scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyggml import ops
from pyggml.tensor import Tensor

if TYPE_CHECKING:
    from pyggml.graph import Node
    from pyggml.llm.config import LlamaConfig
    from pyggml.llm.kv_cache import LayerCache


@dataclass(frozen=True)
class CacheInputs:
    """How a step reaches the cache.

    Attributes:
        cells: (T,) i64, where each token's keys and values are written.
        mask: (T, C) f32, 0 where a token sees a cell, else -inf.
        live: (C,) i32 or None; for plain attention: each cell's own number, a used cell's number
            where the cell is unused, so that no stale byte is ever read.
        n_visible: C, the leading cells that attention sees.
    """

    cells: Node
    mask: Node
    live: Node | None
    n_visible: int


def scale_up(x: Node, scale: float | None, name: str) -> Node:
    """Returns x * scale, or x when there is none."""
    return x if scale is None else ops.mul(x, _scale_const(x, scale, name))


def scale_down(x: Node, scale: float | None, name: str) -> Node:
    """Returns x / scale, or x when there is none."""
    return x if scale is None else ops.div(x, _scale_const(x, scale, name))


def _scale_const(x: Node, scale: float, name: str) -> Node:
    return x.graph.const(Tensor.from_raw(np.array([scale], np.float32), (1,), "f32", name))


def attention(
    q: Node,
    k: Node,
    v: Node,
    cache: LayerCache,
    inputs: CacheInputs,
    config: LlamaConfig,
    name: str,
) -> Node:
    """Multi-head attention of T new tokens over the cells of the cache.

    Shapes: q (T, H, D), k and v (T, G, D), after RoPE; result (T, H*D).
    Dtypes: f32 in and out; the cache in its own.

    Args:
        q: queries.
        k: keys of the new tokens.
        v: values of the new tokens.
        cache: the layer's tensors; the new keys and values are written into them.
        inputs: indices and mask of the step; with `live` the plain path is built, else flash.
        config: heads, head size and score scale.
        name: prefix of the scale constants, "blk.N".
    """
    q = scale_up(q, cache.k_scale, f"{name}.attn_k.k_scale")
    k = scale_down(k, cache.k_scale, f"{name}.attn_k.k_scale")
    v = scale_down(v, cache.v_scale, f"{name}.attn_v.v_scale")
    t, width = q.shape[0], config.n_kv_heads * config.head_dim
    keys = ops.set_rows(cache.k, ops.reshape(k, (t, width)), inputs.cells)  # (cells, G*D)
    values = ops.set_rows(cache.v, ops.reshape(v, (t, width)), inputs.cells)  # (cells, G*D)
    mha = _flash if inputs.live is None else _plain
    out = mha(q, keys, values, inputs, config)  # (T, H, D)
    out = scale_up(out, cache.v_scale, f"{name}.attn_v.v_scale")
    return ops.reshape(out, (t, config.n_heads * config.head_dim))


def _per_head(rows: Node, config: LlamaConfig) -> Node:
    """(C, G*D) -> (G, C, D), a view."""
    split = ops.reshape(rows, (rows.shape[0], config.n_kv_heads, config.head_dim))
    return ops.permute(split, (1, 0, 2))


def _flash(q: Node, keys: Node, values: Node, inputs: CacheInputs, config: LlamaConfig) -> Node:
    n = inputs.n_visible
    return ops.flash_attn_ext(
        ops.permute(q, (1, 0, 2)),  # (H, T, D)
        _per_head(keys[:n], config),  # (G, C, D)
        _per_head(values[:n], config),  # (G, C, D)
        inputs.mask,
        scale=config.attn_scale,
    )


def _plain(q: Node, keys: Node, values: Node, inputs: CacheInputs, config: LlamaConfig) -> Node:
    live = inputs.live
    k = _per_head(ops.get_rows(keys, live), config)  # (G, C, D) f32
    v = _per_head(ops.get_rows(values, live), config)  # (G, C, D) f32
    scores = ops.mul_mat(k, ops.permute(q, (1, 0, 2)))  # (H, T, C)
    p = ops.soft_max(scores, inputs.mask, scale=config.attn_scale)  # (H, T, C)
    v_t = ops.cont(ops.permute(v, (0, 2, 1)))  # (G, D, C)
    out = ops.mul_mat(v_t, p)  # (H, T, D)
    return ops.permute(out, (1, 0, 2))  # (T, H, D)
