"""Makes tiny llama GGUF files with random weights, small enough for every test."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oracles.copy import encode
from pyggml.gguf import BY_NAME, GGUFWriter

# Pairs that BPE joins, in rank order; all else stays single bytes. U+0120 is the space.
MERGES = ("h e", "l l", "he ll", "hell o", "\u0120 t", "i n", "\u0120t he", "e r")
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_NORMAL, _CONTROL = 1, 3


@dataclass(frozen=True)
class TinySpec:
    """What the file holds.

    Attributes:
        dtype: of the matrices: any float dtype; norms are f32. Block formats are encoded by the
            oracles.
        dtypes: name of a matrix without its block, "attn_v", -> its own dtype.
        tied: without output.weight, so that the embedding is the head, too.
        n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff: sizes; n_heads * head_dim need not be
            n_embd.
        n_ctx: llama.context_length.
        rope_dims: rotated elements of a head; None for all.
        rope_base: base of the rotation frequencies.
        rope_factors: divisors of the frequencies, rope_dims / 2 of them.
        weight_scales: divide each matrix by a scale of its own and write `X.scale`.
        kv_scales: layer -> (k, v), None for a side without.
        biases: write biases of Q, K and V.
        seed: of the weights.
        metadata: further keys, name -> (value, type), or None to leave a key out.
    """

    dtype: str = "f32"
    tied: bool = True
    n_layers: int = 2
    n_embd: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    n_ff: int = 96
    n_ctx: int = 512
    rope_dims: int | None = None
    rope_base: float = 10000.0
    rope_factors: tuple[float, ...] | None = None
    weight_scales: bool = False
    kv_scales: dict[int, tuple[float | None, float | None]] = field(default_factory=dict)
    biases: bool = False
    seed: int = 1
    dtypes: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, tuple[Any, str] | None] = field(default_factory=dict)


def make_tiny_model(path: Path, **options: Any) -> Path:
    """Write a model to `path`; the options are the fields of TinySpec. Returns the path."""
    spec = TinySpec(**options)
    with GGUFWriter(path) as writer:
        for key, entry in (_metadata(spec) | spec.metadata).items():
            if entry is not None:
                writer.add(key, *entry)
        _add_tensors(writer, spec)
    return path


def tokens() -> list[str]:
    """The vocabulary: 256 bytes in GPT-2's alphabet, what the merges make, the control tokens."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    alphabet = [chr(b) if b in visible else chr(next(hidden)) for b in range(256)]
    return [*alphabet, *(merge.replace(" ", "") for merge in MERGES), *CONTROLS]


def _metadata(spec: TinySpec) -> dict[str, tuple[Any, str] | None]:
    vocab = tokens()
    n_normal = len(vocab) - len(CONTROLS)
    rope_dims = spec.head_dim if spec.rope_dims is None else spec.rope_dims
    return {
        "general.architecture": ("llama", "string"),
        "general.name": ("tiny", "string"),
        "llama.block_count": (spec.n_layers, "u32"),
        "llama.context_length": (spec.n_ctx, "u32"),
        "llama.embedding_length": (spec.n_embd, "u32"),
        "llama.feed_forward_length": (spec.n_ff, "u32"),
        "llama.attention.head_count": (spec.n_heads, "u32"),
        "llama.attention.head_count_kv": (spec.n_kv_heads, "u32"),
        "llama.attention.key_length": (spec.head_dim, "u32"),
        "llama.attention.value_length": (spec.head_dim, "u32"),
        "llama.attention.layer_norm_rms_epsilon": (1e-5, "f32"),
        "llama.rope.dimension_count": (rope_dims, "u32"),
        "llama.rope.freq_base": (spec.rope_base, "f32"),
        "llama.vocab_size": (len(vocab), "u32"),
        "tokenizer.ggml.model": ("gpt2", "string"),
        "tokenizer.ggml.pre": ("gpt-2", "string"),
        "tokenizer.ggml.tokens": (vocab, "string[]"),
        "tokenizer.ggml.token_type": (
            [_NORMAL] * n_normal + [_CONTROL] * len(CONTROLS),
            "i32[]",
        ),
        "tokenizer.ggml.merges": (list(MERGES), "string[]"),
        "tokenizer.ggml.bos_token_id": (vocab.index("<|im_start|>"), "u32"),
        "tokenizer.ggml.eos_token_id": (vocab.index("<|im_end|>"), "u32"),
        "tokenizer.ggml.add_bos_token": (False, "bool"),
        "tokenizer.chat_template": (CHAT_TEMPLATE, "string"),
    }


def _add_tensors(writer: GGUFWriter, spec: TinySpec) -> None:
    make = _Maker(writer, spec)
    e, f, n_vocab = spec.n_embd, spec.n_ff, len(tokens())
    q, kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    make.matrix("token_embd", n_vocab, e, scale=False)
    for i in range(spec.n_layers):
        b = f"blk.{i}."
        make.norm(b + "attn_norm.weight")
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            make.matrix(b + name, rows, e)
            if spec.biases:
                make.vector(b + name + ".bias", rows, 0.1)
        make.matrix(b + "attn_output", e, q)
        make.norm(b + "ffn_norm.weight")
        make.matrix(b + "ffn_gate", f, e)
        make.matrix(b + "ffn_up", f, e)
        make.matrix(b + "ffn_down", e, f)
        for name, scale in zip(
            ("attn_k.k_scale", "attn_v.v_scale"), spec.kv_scales.get(i, (None, None)), strict=True
        ):
            if scale is not None:
                writer.add_tensor(b + name, np.array([scale], np.float32), "f32")
    make.norm("output_norm.weight")
    if not spec.tied:
        make.matrix("output", n_vocab, e)
    if spec.rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(spec.rope_factors, np.float32), "f32")


class _Maker:
    """Draws the weights, in the order of the calls."""

    def __init__(self, writer: GGUFWriter, spec: TinySpec) -> None:
        self.writer, self.spec = writer, spec
        self.random = np.random.default_rng(spec.seed)

    def matrix(self, name: str, rows: int, columns: int, scale: bool = True) -> None:
        """(rows, columns), so that unit inputs give about unit outputs."""
        w = self.random.normal(0, 1 / math.sqrt(columns), (rows, columns)).astype(np.float32)
        if scale and self.spec.weight_scales:
            s = np.float32(np.abs(w).max() / 448)  # the largest becomes E4M3's largest
            w = w / s
            self.writer.add_tensor(name + ".scale", np.array([s], np.float32), "f32")
        dtype = self.spec.dtypes.get(name.rpartition(".")[2], self.spec.dtype)
        if BY_NAME[dtype].block > 1:
            self.writer.add_raw_tensor(name + ".weight", encode(w, dtype), w.shape, dtype)
        else:
            self.writer.add_tensor(name + ".weight", w, dtype)

    def norm(self, name: str) -> None:
        """Weights of a norm, around 1."""
        self.vector(name, self.spec.n_embd, 0.1, 1.0)

    def vector(self, name: str, n: int, spread: float, centre: float = 0.0) -> None:
        """(n,) f32."""
        self.writer.add_tensor(
            name, self.random.normal(centre, spread, n).astype(np.float32), "f32"
        )
