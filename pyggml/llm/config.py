"""The hyper-parameters of a llama model, read from GGUF metadata."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LAYERS = 1024

# Keys of the architecture that are understood; any other rope or attention key changes the model's
# arithmetic in a way that is not built here, so it is refused rather than ignored.
_KNOWN = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
    "attention.scale",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
}


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and constants of one model.

    Attributes:
        n_layers: transformer blocks.
        n_embd: model width E.
        n_ff: width of the feed-forward layer F.
        n_heads: query heads H.
        n_kv_heads: key/value heads G; H is a multiple of G.
        head_dim: head size D of queries, keys and values.
        rope_dims: leading elements of a head that are rotated; even.
        rope_base: base of the rotation frequencies.
        rope_scale: factor on positions (1 / factor of linear scaling).
        rms_eps: epsilon of the norms.
        attn_scale: factor on the scores, 1 / sqrt(D) unless the file says otherwise.
        n_ctx_train: context length the model was trained with.
        n_vocab: rows of the embedding, 0 when the file does not say.
    """

    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    rope_dims: int
    rope_base: float
    rope_scale: float
    rms_eps: float
    attn_scale: float
    n_ctx_train: int
    n_vocab: int

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], source: str = "model") -> LlamaConfig:
        """Reads and checks the `llama.*` keys.

        Args:
            metadata: key -> value of a GGUF file.
            source: name of the file, for messages.

        Raises:
            ModelError: another architecture (named), a missing, ill-typed or impossible value, or a
                rope / attention key that this builder does not understand.
        """
        read = _Reader(metadata, source)
        n_heads = read.count("attention.head_count")
        n_kv_heads = read.count("attention.head_count_kv", n_heads)
        n_embd = read.count("embedding_length")
        if n_heads % n_kv_heads:
            read.fail(
                "attention.head_count", f"{n_heads} is not a multiple of {n_kv_heads} kv heads"
            )
        if "llama.attention.key_length" not in metadata and n_embd % n_heads:
            read.fail("attention.head_count", f"{n_heads} does not divide the width {n_embd}")
        head_dim = read.count("attention.key_length", n_embd // n_heads or None)
        if read.count("attention.value_length", head_dim) != head_dim:
            read.fail("attention.value_length", f"differs from the key length {head_dim}")
        rope_dims = read.count("rope.dimension_count", head_dim)
        if rope_dims % 2 or rope_dims > head_dim:
            read.fail("rope.dimension_count", f"{rope_dims} is not even and at most {head_dim}")
        n_layers = read.count("block_count")
        if n_layers > MAX_LAYERS:
            read.fail("block_count", f"{n_layers} is more than {MAX_LAYERS}")
        return cls(
            n_layers=n_layers,
            n_embd=n_embd,
            n_ff=read.count("feed_forward_length"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            rope_dims=rope_dims,
            rope_base=read.positive("rope.freq_base", 10000.0),
            rope_scale=read.rope_scale(),
            rms_eps=read.positive("attention.layer_norm_rms_epsilon"),
            attn_scale=read.positive("attention.scale", 1 / math.sqrt(head_dim)),
            n_ctx_train=read.count("context_length"),
            n_vocab=read.count("vocab_size", 0),
        )


class _Reader:
    """Typed look-ups of `llama.*` keys with messages that name file and key."""

    def __init__(self, metadata: Mapping[str, Any], source: str) -> None:
        self.metadata = metadata
        self.source = source
        arch = metadata.get("general.architecture")
        if arch != "llama":
            raise ModelError(f"{source}: architecture {arch!r} is not supported; only 'llama' is")
        for key in metadata:
            name = key.removeprefix("llama.")
            if name != key and name.startswith(("rope.", "attention.")) and name not in _KNOWN:
                self.fail(name, "is not understood, and leaving it out would change the results")
        if metadata.get("llama.expert_count", 0):
            self.fail("expert_count", "mixture-of-experts models are not supported")

    def fail(self, name: str, what: str) -> None:
        raise ModelError(f"{self.source}: llama.{name}: {what}")

    def _get(self, name: str, default: Any) -> Any:
        value = self.metadata.get(f"llama.{name}", default)
        if value is None:
            self.fail(name, "is missing")
        if isinstance(value, np.ndarray):  # one value a layer: fine while they agree
            if value.size == 0 or (value != value.flat[0]).any():
                self.fail(name, "differs from layer to layer, which is not supported")
            value = value.flat[0].item()
        return value

    def count(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"is {value!r}, an integer is needed")
        low = 0 if default == 0 else 1
        if not low <= value < 1 << 31:
            self.fail(name, f"is {value}, outside [{low}, 2^31)")
        return int(value)

    def positive(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(name, f"is {value!r}, a number is needed")
        if not (math.isfinite(value) and value > 0):
            self.fail(name, f"is {value}, a finite number > 0 is needed")
        return float(value)

    def rope_scale(self) -> float:
        kind = self.metadata.get("llama.rope.scaling.type", "linear")
        if kind not in ("none", "linear"):
            self.fail("rope.scaling.type", f"{kind!r} is not supported; 'none' and 'linear' are")
        if kind == "none":
            return 1.0
        old = self.positive("rope.scale_linear", 1.0)
        return 1.0 / self.positive("rope.scaling.factor", old)
