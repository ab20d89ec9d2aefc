"""The llama forward pass in float64, from a plain dict of weight arrays.

Weights carry GGUF names; a matrix is (out, in). Q and K rows are in the order of GGUF llama
files, permuted for the adjacent-pair rope. Letters: T tokens, E width, H query heads, G kv
heads, D head size, F ffn width, V vocabulary.
Source: Touvron et al. 2023 (LLaMA, Llama 2): pre-norm, RMSNorm, rope, SwiGLU; Ainslie et al.
2023 for grouped kv heads.
"""

from dataclasses import dataclass

import numpy as np

from . import elementwise, formats, gguf_min, norm, rope

_HEAD_CHUNK = 8192  # vocabulary rows per product: bounds memory beside the logits


@dataclass(frozen=True)
class LlamaConfig:
    """What the forward pass must know beside the weights."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    rope_dims: int
    rope_base: float = 10000.0
    rope_scale: float = 1.0  # multiplies positions; 1 / factor of linear scaling
    norm_eps: float = 1e-5


def load_gguf(path):
    """Weights and config of a llama GGUF file.

    Shapes: -> (dict name -> float64 array, LlamaConfig). Source: GGUF key names, "llama.*".
    """
    meta, weights = gguf_min.read_gguf(path)
    if meta["general.architecture"] != "llama":
        raise ValueError(f"architecture {meta['general.architecture']!r} is not llama")
    get = {k.removeprefix("llama."): v for k, v in meta.items()}.get
    n_heads = get("attention.head_count")
    head_dim = get("attention.key_length", get("embedding_length") // n_heads)
    scaling, factor = get("rope.scaling.type", "none"), get("rope.scaling.factor", 1.0)
    if scaling not in ("none", "linear"):
        raise ValueError(f"rope scaling {scaling!r} has no oracle")
    config = LlamaConfig(
        n_layers=get("block_count"),
        n_heads=n_heads,
        n_kv_heads=get("attention.head_count_kv", n_heads),
        head_dim=head_dim,
        rope_dims=get("rope.dimension_count", head_dim),
        rope_base=get("rope.freq_base", 10000.0),
        rope_scale=1.0 / factor if scaling == "linear" else 1.0,
        norm_eps=get("attention.layer_norm_rms_epsilon"),
    )
    return weights, config


def forward(weights, config, tokens, rows=None, k_e4m3=False, v_e4m3=False, kv_scales=None):
    """Logits after each token of one sequence that starts at position 0.

    Args:
        weights: dict name -> float64 array; `X.scale` beside `X.weight` multiplies X's product.
        config: LlamaConfig.
        tokens: T token ids.
        rows: positions to return logits for; all when None (T * V * 8 bytes).
        k_e4m3: round K as an F8_E4M3 cache does: decode(encode(K / sk)) * sk.
        v_e4m3: the same for V with sv.
        kv_scales: dict layer -> (sk, sv), absent layers 1; None takes the weights' own
            `blk.N.attn_k.k_scale` and `blk.N.attn_v.v_scale` where they exist.

    Shapes: tokens (T,) -> float64 (T, V), or (len(rows), V).
    Source: as the file's head; the cache scales: docs/design.md.
    """
    tokens = np.asarray(tokens, dtype=np.int64)
    x = weights["token_embd.weight"][tokens] * _number(weights, "token_embd.scale")  # (T, E)
    for layer in range(config.n_layers):
        blk = f"blk.{layer}."
        sk, sv = _kv_scales(weights, layer, kv_scales)
        round_kv = (sk if k_e4m3 else None, sv if v_e4m3 else None)
        h = norm.rms_norm(x, weights[blk + "attn_norm.weight"], config.norm_eps)  # (T, E)
        x = x + _attention(weights, config, blk, h, round_kv)
        h = norm.rms_norm(x, weights[blk + "ffn_norm.weight"], config.norm_eps)
        x = x + _ffn(weights, blk, h)
    x = x if rows is None else x[np.asarray(rows)]
    x = norm.rms_norm(x, weights["output_norm.weight"], config.norm_eps)
    return _head(weights, x)


def _number(weights, name):
    """The single value stored under `name`, 1 when it is absent."""
    return float(np.asarray(weights[name]).reshape(())) if name in weights else 1.0


def _kv_scales(weights, layer, given):
    """(sk, sv) of a layer: from the mapping when there is one, else from the weights."""
    if given is not None:
        sk, sv = given.get(layer, (None, None))
        return (1.0 if sk is None else sk), (1.0 if sv is None else sv)
    blk = f"blk.{layer}."
    return _number(weights, blk + "attn_k.k_scale"), _number(weights, blk + "attn_v.v_scale")


def _linear(weights, name, x):
    """Product x W^T * scale + bias; scale and bias only where the weights have them."""
    y = x @ weights[name + ".weight"].T * _number(weights, name + ".scale")
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def _attention(weights, config, blk, x, round_kv):
    """Causal attention with grouped kv heads: x (T, E) -> (T, E)."""
    n_tokens, d = len(x), config.head_dim
    q = _linear(weights, blk + "attn_q", x).reshape(n_tokens, config.n_heads, d)
    k = _linear(weights, blk + "attn_k", x).reshape(n_tokens, config.n_kv_heads, d)
    v = _linear(weights, blk + "attn_v", x).reshape(n_tokens, config.n_kv_heads, d)
    pos, factors = np.arange(n_tokens), weights.get("rope_freqs.weight")
    turn = (pos, config.rope_dims, config.rope_base, config.rope_scale, factors)
    q, k = rope.rope_norm(q, *turn), rope.rope_norm(k, *turn)
    sk, sv = round_kv
    k = k if sk is None else formats.e4m3_round(k, sk)
    v = v if sv is None else formats.e4m3_round(v, sv)
    out = np.empty_like(q)  # (T, H, D)
    later = pos[None, :] > pos[:, None]  # (T, T): cells that a token must not see
    for h in range(config.n_heads):
        g = h // (config.n_heads // config.n_kv_heads)
        s = q[:, h] @ k[:, g].T / np.sqrt(d)  # (T, T)
        s[later] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[:, h] = (p / p.sum(axis=1, keepdims=True)) @ v[:, g]
    return _linear(weights, blk + "attn_output", out.reshape(n_tokens, -1))


def _ffn(weights, blk, x):
    """down(silu(gate x) * up x): x (T, E) -> (T, E)."""
    gate = _linear(weights, blk + "ffn_gate", x)  # (T, F)
    up = _linear(weights, blk + "ffn_up", x)
    return _linear(weights, blk + "ffn_down", elementwise.swiglu(gate, up))


def _head(weights, x):
    """Logits (T, V) from x (T, E); without output.weight the embedding serves (tied head)."""
    name = "output" if "output.weight" in weights else "token_embd"
    w = weights[name + ".weight"]
    logits = np.empty((len(x), len(w)))
    for v in range(0, len(w), _HEAD_CHUNK):
        logits[:, v : v + _HEAD_CHUNK] = x @ w[v : v + _HEAD_CHUNK].T
    logits *= _number(weights, name + ".scale")
    return logits
