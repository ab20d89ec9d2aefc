"""The llama forward pass as a graph. It reads beside the papers.

Touvron et al. 2023 (LLaMA), Zhang & Sennrich 2019 (RMSNorm), Su et al. 2021 (RoPE), Shazeer 2020
(SwiGLU), Ainslie et al. 2023 (grouped-query attention).

T tokens of the step, C cells seen, H query heads, G kv heads, D head size, E model width, F ffn,
V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml import ops
from pyggml.llm.attention import CacheInputs, attention

if TYPE_CHECKING:
    from pyggml.graph import Graph, Node
    from pyggml.llm.config import LlamaConfig
    from pyggml.llm.kv_cache import KVCache
    from pyggml.llm.weights import Layer, Linear, Weights


def linear(w: Linear, x: Node) -> Node:
    """Linear, x (T, in) -> (T, out): matrix product, static weight scale, bias."""
    y = ops.mul_mat(w.weight, x)
    if w.scale is not None:
        y = ops.mul(y, w.scale)
    return y if w.bias is None else ops.add(y, w.bias)


def build_llama(
    g: Graph,
    weights: Weights,
    config: LlamaConfig,
    cache: KVCache,
    n_tokens: int,
    n_visible: int,
    n_out: int,
    flash_attn: bool = True,
) -> Node:
    """Builds one step; returns the logits (n_out, V).

    Inputs of the graph: tokens (T,) i32, positions (T,) i32, cells (T,) i64, mask (T, C) f32,
    out_rows (n_out,) i32 (the tokens whose logits are wanted), and for plain attention live (C,)
    i32.

    Args:
        g: an empty graph.
        weights: of the model.
        config: of the model.
        cache: is written by the graph.
        n_tokens: T.
        n_visible: C.
        n_out: rows of logits.
        flash_attn: the fused attention, or matrix products and a soft_max.
    """
    tokens = g.input("tokens", (n_tokens,), "i32")
    positions = g.input("positions", (n_tokens,), "i32")
    inputs = CacheInputs(
        cells=g.input("cells", (n_tokens,), "i64"),
        mask=g.input("mask", (n_tokens, n_visible), "f32"),
        live=None if flash_attn else g.input("live", (n_visible,), "i32"),
        n_visible=n_visible,
    )
    out_rows = g.input("out_rows", (n_out,), "i32")

    x = ops.get_rows(weights.embedding, tokens)  # (T, E)
    if weights.embedding_scale is not None:
        x = ops.mul(x, weights.embedding_scale)
    for i, layer in enumerate(weights.layers):
        x = x + attention_block(layer, x, positions, weights, config, cache, inputs, i)  # (T, E)
        x = x + feed_forward(layer, x, config)  # (T, E)
    x = ops.get_rows(x, out_rows)  # (n_out, E)
    return linear(weights.head, norm(x, weights.norm, config))  # (n_out, V)


def norm(x: Node, weight: object, config: LlamaConfig) -> Node:
    """RMSNorm with its gain: (T, E) -> (T, E)."""
    return ops.mul(ops.rms_norm(x, eps=config.rms_eps), weight)


def attention_block(
    layer: Layer,
    x: Node,
    positions: Node,
    weights: Weights,
    config: LlamaConfig,
    cache: KVCache,
    inputs: CacheInputs,
    i: int,
) -> Node:
    """Norm, Q K V, RoPE, attention over the cache, output projection: (T, E) -> (T, E)."""
    t, d = x.shape[0], config.head_dim
    h = norm(x, layer.attn_norm, config)  # (T, E)
    q = ops.reshape(linear(layer.q, h), (t, config.n_heads, d))  # (T, H, D)
    k = ops.reshape(linear(layer.k, h), (t, config.n_kv_heads, d))  # (T, G, D)
    v = ops.reshape(linear(layer.v, h), (t, config.n_kv_heads, d))  # (T, G, D)
    q = rope(q, positions, weights, config)
    k = rope(k, positions, weights, config)
    mixed = attention(q, k, v, cache.layers[i], inputs, config, f"blk.{i}")  # (T, H*D)
    return linear(layer.out, mixed)


def rope(x: Node, positions: Node, weights: Weights, config: LlamaConfig) -> Node:
    """Rotary position embedding of adjacent pairs: (T, heads, D) -> same."""
    return ops.rope(
        x,
        positions,
        weights.rope_factors,
        n_dims=config.rope_dims,
        mode="norm",
        freq_base=config.rope_base,
        freq_scale=config.rope_scale,
    )


def feed_forward(layer: Layer, x: Node, config: LlamaConfig) -> Node:
    """SwiGLU: (T, E) -> (T, F) -> (T, E)."""
    h = norm(x, layer.ffn_norm, config)
    return linear(layer.down, ops.swiglu(linear(layer.gate, h), linear(layer.up, h)))
