"""The weights of a llama model: GGUF tensors, named, checked, mapped without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyggml.dtypes import DTYPES, DType
from pyggml.errors import ModelError
from pyggml.llm.scales import K_SCALE, V_SCALE, check_complete, tensor_scale
from pyggml.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyggml.gguf import GGUFFile
    from pyggml.llm.config import LlamaConfig

_BY_GGUF_ID = {d.gguf_id: d for d in DTYPES if d.gguf_id is not None}


@dataclass(frozen=True)
class Linear:
    """One matrix: y = (x . weight^T) * scale + bias.

    Attributes:
        weight: (out, in), any float dtype.
        scale: (1,) f32 or None.
        bias: (out,) or None.
        input_scale: activation scale of the checkpoint; kept, not used (activations stay F32).
    """

    weight: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None
    input_scale: Tensor | None = None


@dataclass(frozen=True)
class Layer:
    """Weights of one transformer block."""

    attn_norm: Tensor  # (E,)
    q: Linear  # (H*D, E)
    k: Linear  # (G*D, E)
    v: Linear  # (G*D, E)
    out: Linear  # (E, H*D)
    ffn_norm: Tensor  # (E,)
    gate: Linear  # (F, E)
    up: Linear  # (F, E)
    down: Linear  # (E, F)


@dataclass(frozen=True)
class Weights:
    """All weights of a model.

    Attributes:
        embedding: (V, E).
        embedding_scale: (1,) f32 or None; multiplies the rows that are looked up.
        layers: one `Layer` a block.
        norm: (E,) of the final norm.
        head: (V, E); the embedding itself when the file ties them.
        tied: True when it does.
        rope_factors: (rope_dims / 2,) divisors of the rotation frequencies, or None.
        kv_scales: layer -> (k, v) found in the file.
        n_vocab: V.
    """

    embedding: Tensor
    embedding_scale: Tensor | None
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear
    tied: bool
    rope_factors: Tensor | None
    kv_scales: dict[int, tuple[float | None, float | None]]
    n_vocab: int

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that a token reads."""
        linears = [self.head]
        for layer in self.layers:
            linears += [layer.q, layer.k, layer.v, layer.out, layer.gate, layer.up, layer.down]
        return sum(x.weight.nbytes for x in linears)


def load_weights(file: GGUFFile, config: LlamaConfig, check: bool = False) -> Weights:
    """Takes every tensor of the file into its place.

    Args:
        file: an open GGUF file; the tensors view its mapping and keep it alive.
        config: sizes that the tensors must have.
        check: also reads every weight and refuses NaN codes and infinities.

    Raises:
        ModelError: a missing or misshapen tensor, a dtype without kernels, a bad scale, a partial
            set of KV scales, tensors that the model has no place for.
    """
    take = _Taker(file, check)
    c = config
    e, f, h, g = c.n_embd, c.n_ff, c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    embedding = take.linear("token_embd", c.n_vocab or -1, e, has_bias=False)
    n_vocab = embedding.weight.shape[0]
    layers = []
    for i in range(c.n_layers):
        b = f"blk.{i}."
        layers.append(
            Layer(
                attn_norm=take.vector(b + "attn_norm.weight", e),
                q=take.linear(b + "attn_q", h, e),
                k=take.linear(b + "attn_k", g, e),
                v=take.linear(b + "attn_v", g, e),
                out=take.linear(b + "attn_output", e, h),
                ffn_norm=take.vector(b + "ffn_norm.weight", e),
                gate=take.linear(b + "ffn_gate", f, e),
                up=take.linear(b + "ffn_up", f, e),
                down=take.linear(b + "ffn_down", e, f),
            )
        )
    norm = take.vector("output_norm.weight", e)
    tied = "output.weight" not in file.tensors
    head = embedding if tied else take.linear("output", n_vocab, e)
    factors = take.optional("rope_freqs.weight", (c.rope_dims // 2,))
    if factors is not None:
        if factors.dtype.name != "f32":
            raise ModelError(f"{file.path}: rope_freqs.weight is {factors.dtype.name}, not f32")
        if not (np.isfinite(factors.numpy()) & (factors.numpy() > 0)).all():
            raise ModelError(f"{file.path}: rope_freqs.weight: divisors must be finite and > 0")
    scales = _kv_scales(take, c.n_layers)
    take.finish()
    rows, scale = embedding.weight, embedding.scale
    return Weights(rows, scale, tuple(layers), norm, head, tied, factors, scales, n_vocab)


def _kv_scales(take: _Taker, n_layers: int) -> dict[int, tuple[float | None, float | None]]:
    scales: dict[int, tuple[float | None, float | None]] = {}
    for i in range(n_layers):
        k, v = take.scale(K_SCALE.format(i)), take.scale(V_SCALE.format(i))
        if k is not None or v is not None:
            scales[i] = (k, v)
    check_complete(scales, n_layers, str(take.file.path))
    return scales


class _Taker:
    """Hands out tensors by name and remembers which were taken."""

    def __init__(self, file: GGUFFile, check: bool) -> None:
        self.file = file
        self.check = check
        self.left = dict.fromkeys(file.tensors)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        t = self.optional(name, shape)
        if t is None:
            raise ModelError(f"{self.file.path}: the tensor {name} is missing")
        return t

    def optional(self, name: str, shape: tuple[int, ...] | None) -> Tensor | None:
        info = self.file.tensors.get(name)
        if info is None:
            return None
        self.left.pop(name, None)
        kind = _BY_GGUF_ID.get(info.type.id)
        if kind is None:
            usable = ", ".join(d.name for d in DTYPES if d.is_float)
            raise ModelError(
                f"{self.file.path}: tensor {name} is {info.type.name}, which has no kernels here; "
                f"usable are {usable}"
            )
        if shape is not None and not _fits(info.shape, shape):
            wanted = tuple("any" if n < 0 else n for n in shape)
            raise ModelError(
                f"{self.file.path}: tensor {name} has shape {info.shape}, {wanted} is needed"
            )
        t = Tensor.from_raw(info.raw, info.shape, kind, name)
        if self.check:
            check_values(t, str(self.file.path))
        return t

    def vector(self, name: str, n: int) -> Tensor:
        return self._numbers(self.tensor(name, (n,)))

    def _floats(self, t: Tensor) -> Tensor:
        if not t.dtype.is_float:
            raise ModelError(f"{self.file.path}: tensor {t.name} is {t.dtype.name}, not a float")
        return t

    def _numbers(self, t: Tensor) -> Tensor:
        """A vector that elementwise ops take: floats one by one, no blocks."""
        if t.dtype.is_block:
            raise ModelError(f"{self.file.path}: tensor {t.name} is a vector in {t.dtype.name}")
        return self._floats(t)

    def linear(self, name: str, n_out: int, n_in: int, has_bias: bool = True) -> Linear:
        weight = self._floats(self.tensor(name + ".weight", (n_out, n_in)))
        bias = self.optional(name + ".bias", (n_out,)) if has_bias else None
        if bias is not None:
            self._numbers(bias)
        input_scale = self.optional(name + ".input_scale", None)
        if input_scale is not None:
            tensor_scale(input_scale, f"{self.file.path}: {name}.input_scale")
        return Linear(weight, self._scale_tensor(name + ".scale"), bias, input_scale)

    def _scale_tensor(self, name: str) -> Tensor | None:
        value = self.scale(name)
        if value is None:
            return None
        return Tensor.from_raw(np.array([value], np.float32), (1,), "f32", name)

    def scale(self, name: str) -> float | None:
        t = self.optional(name, None)
        return None if t is None else tensor_scale(t, f"{self.file.path}: {name}")

    def finish(self) -> None:
        if not self.left:
            return
        names = sorted(self.left)
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise ModelError(f"{self.file.path}: the model has no place for the tensors {shown}")


def _fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(found) == len(wanted) and all(
        w < 0 or n == w for n, w in zip(found, wanted, strict=True)
    )


def check_values(t: Tensor, source: str) -> None:
    """Reads a tensor whole and refuses values that are not finite.

    Raises:
        ModelError: names the tensor, the first bad element and how many there are.
    """
    if not t.dtype.is_float:
        return
    rows = t.shape[0] if t.ndim > 1 else 1
    per_row = t.size // rows if rows else 0
    row_bytes = t.nbytes // rows if rows else 0
    chunk = max(1, (1 << 20) // max(per_row, 1))
    bad, first = 0, -1
    for r in range(0, rows, chunk):
        n = min(chunk, rows - r)
        part = _decode(t.raw()[r * row_bytes : (r + n) * row_bytes], t.dtype, n * per_row)
        at = np.flatnonzero(~np.isfinite(part))
        if at.size and first < 0:
            first = r * per_row + int(at[0])
        bad += at.size
    if bad:
        index = tuple(int(i) for i in np.unravel_index(first, t.shape or (1,)))
        raise ModelError(
            f"{source}: tensor {t.name} holds {bad} values that are not finite, "
            f"the first at {index}"
        )


def _decode(raw: NDArray[np.uint8], kind: DType, n: int) -> NDArray[np.float32]:
    return Tensor.from_raw(raw, (n,), kind).dequantize()
