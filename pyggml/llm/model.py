"""`Llama`: load a GGUF model, evaluate tokens, sample, generate. Names follow llama_cpp.Llama."""

from __future__ import annotations

import inspect
import os
import threading
import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Never, Self

import numpy as np

from pyggml import _core
from pyggml.errors import ContextError, ModelError, ParameterError
from pyggml.gguf import GGUFFile
from pyggml.llm.chat import ChatTemplate
from pyggml.llm.completion import CompletionMixin
from pyggml.llm.config import LlamaConfig
from pyggml.llm.kv_cache import KVCache, cache_dtype
from pyggml.llm.sampler import Sampler, SamplingParams
from pyggml.llm.scales import choose_kv_scales
from pyggml.llm.session import Session
from pyggml.llm.tokenizer import Tokenizer
from pyggml.llm.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pyggml.dtypes import DTypeLike
    from pyggml.llm.scales import KVScales


@dataclass
class Timings:
    """What the last call cost.

    Attributes:
        load_s: seconds that loading the model took.
        prompt_tokens: prompt tokens evaluated (not those reused from the cache).
        prompt_s: seconds for them.
        decode_tokens: tokens evaluated one by one.
        decode_s: seconds for them, sampling included.
        token_ids: the generated ids.
    """

    load_s: float = 0.0
    prompt_tokens: int = 0
    prompt_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    token_ids: list[int] = field(default_factory=list)

    def restart(self) -> None:
        """Forgets the last call; the load time stays."""
        self.prompt_tokens = self.decode_tokens = 0
        self.prompt_s = self.decode_s = 0.0
        self.token_ids = []


class Llama(CompletionMixin):
    """A llama model read from a GGUF file, with one sequence of context.

    Arguments of llama_cpp.Llama that mean nothing here (n_gpu_layers, use_mmap, chat_format ...)
    are refused, not ignored.

    Args:
        model_path: the GGUF file; it is mapped, not copied.
        n_ctx: tokens of context; 0 takes what the model was trained with.
        n_batch: a longer prompt is evaluated in pieces of this many tokens.
        n_threads: None takes the physical cores available to the process.
        type_k: dtype of the cached keys: "f32", "f16", "bf16", "f8_e4m3", "q8_0" or a DType.
        type_v: dtype of the cached values.
        flash_attn: the fused attention (default), or matrix products and a soft_max.
        seed: of the sampling where a call gives none; None takes one from the system.
        logits_all: keep the logits of every token in `scores`, not only the last.
        kv_scales: scales of an F8_E4M3 cache: "file", "unit", or {layer: (k, v)} with None for 1.
        check: read every weight and refuse NaN codes and infinities.
        verbose: print the load report to stderr.

    Raises:
        GGUFError: not a readable GGUF file.
        ModelError: not a llama model, or its tensors or scales do not fit.
        TokenizerError: a vocabulary of another kind.
        ParameterError, DTypeError, OutOfMemoryError: an argument that cannot be.
        TypeError: an argument that is not there.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_threads: int | None = None,
        type_k: DTypeLike = "f16",
        type_v: DTypeLike = "f16",
        flash_attn: bool = True,
        seed: int | None = None,
        logits_all: bool = False,
        kv_scales: str | KVScales = "file",
        check: bool = False,
        verbose: bool = False,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise TypeError(_no_such_option(type(self), list(unknown)))
        started = time.perf_counter()
        _check_sizes(n_ctx, n_batch, n_threads)
        self.model_path = os.fspath(model_path)
        self.verbose = verbose
        self._lock = threading.RLock()
        self._seed = seed
        with GGUFFile(self.model_path) as file:
            self._config = LlamaConfig.from_metadata(file.metadata, self.model_path)
            weights = load_weights(file, self._config, check)
            self._tokenizer = Tokenizer.from_metadata(file.metadata)
            self.metadata: Mapping[str, Any] = dict(file.metadata)
        self._n_vocab = weights.n_vocab
        if self._tokenizer.n_vocab != self._n_vocab:
            raise ModelError(
                f"{self.model_path}: {self._tokenizer.n_vocab} tokens in the vocabulary, "
                f"{self._n_vocab} rows in token_embd.weight"
            )
        self._n_ctx = n_ctx or self._config.n_ctx_train
        self.n_batch = n_batch
        kinds = cache_dtype(type_k, "type_k"), cache_dtype(type_v, "type_v")
        scales = choose_kv_scales(kv_scales, weights.kv_scales, self._config.n_layers, kinds)
        c = self._config
        cache = KVCache(self._n_ctx, c.n_layers, c.n_kv_heads, c.head_dim, type_k, type_v, scales)
        self._session: Session | None = Session(weights, c, cache, n_threads, flash_attn)
        self._logits_all = logits_all
        self._ids: list[int] = []
        self._logits: list[NDArray[np.float32]] = []  # joined when `scores` is asked for
        self._template: ChatTemplate | None = None
        self.timings = Timings(load_s=time.perf_counter() - started)
        if verbose:
            import sys

            print(self.load_report(), file=sys.stderr)

    # ---- what it is ----

    @property
    def session(self) -> Session:
        """The running session.

        Raises:
            ParameterError: the model was closed.
        """
        if self._session is None:
            raise ParameterError("this Llama was closed")
        return self._session

    @property
    def config(self) -> LlamaConfig:
        """The hyper-parameters."""
        return self._config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self._tokenizer

    @property
    def cache(self) -> KVCache:
        """The KV cache."""
        return self.session.cache

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache."""
        return self.cache.nbytes

    @property
    def n_tokens(self) -> int:
        """Tokens in the context."""
        return len(self._ids)

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """The ids in the context."""
        return np.array(self._ids, np.int32)

    @property
    def scores(self) -> NDArray[np.float32]:
        """Logits: (n_tokens, V) with logits_all, else (1, V) of the last token, or (0, V)."""
        if len(self._logits) != 1:
            empty = np.zeros((0, self.n_vocab()), np.float32)
            self._logits = [np.concatenate([empty, *self._logits])]
        return self._logits[0]

    def n_ctx(self) -> int:
        """Tokens of context."""
        return self._n_ctx

    def n_vocab(self) -> int:
        """Size of the vocabulary V."""
        return self._n_vocab

    def n_embd(self) -> int:
        """Width of the model E."""
        return self._config.n_embd

    def token_bos(self) -> int:
        """Id of the begin-of-text token, -1 when the file has none."""
        return -1 if self._tokenizer.bos_id is None else self._tokenizer.bos_id

    def token_eos(self) -> int:
        """Id of the end-of-text token, -1 when the file has none."""
        return -1 if self._tokenizer.eos_id is None else self._tokenizer.eos_id

    def load_report(self) -> str:
        """What was loaded: sizes, dtypes, threads, cache, and each layer's scales."""
        c, cache, w = self._config, self.cache, self.session.weights
        kinds: dict[str, int] = {}
        for layer in w.layers:
            for part in (layer.q, layer.k, layer.v, layer.out, layer.gate, layer.up, layer.down):
                kinds[part.weight.dtype.name] = kinds.get(part.weight.dtype.name, 0) + 1
        lines = [
            f"model    {self.model_path}",
            f"llama    {c.n_layers} layers, width {c.n_embd}, ffn {c.n_ff}, {c.n_heads} heads, "
            f"{c.n_kv_heads} kv heads of {c.head_dim}, vocabulary {w.n_vocab}",
            "weights  "
            + ", ".join(f"{n} x {name}" for name, n in sorted(kinds.items()))
            + f", {'tied ' if w.tied else ''}head {w.head.weight.dtype.name}",
            f"runtime  {_core.isa()} kernels, {self.session.threads or _core.default_threads()} "
            f"threads, {'flash' if self.session.flash_attn else 'plain'} attention",
            f"cache    {cache.n_cells} cells, k {cache.type_k.name}, v {cache.type_v.name}, "
            f"{cache.nbytes:,} bytes",
        ]
        scaled = [
            f"  layer {i}: k {_one(x.k_scale)}, v {_one(x.v_scale)}"
            for i, x in enumerate(cache.layers)
            if x.k_scale is not None or x.v_scale is not None
        ]
        lines.append(
            f"scales   {len(scaled)} of {c.n_layers} layers" if scaled else "scales   none"
        )
        return "\n".join(lines + scaled)

    # ---- text and ids ----

    def tokenize(self, text: bytes | str, add_bos: bool = True, special: bool = False) -> list[int]:
        """Text to ids.

        Args:
            text: UTF-8 bytes or a str.
            add_bos: start with BOS where the file asks for it.
            special: parse the spellings of control tokens.
        """
        return self._tokenizer.encode(text, None if add_bos else False, special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> bytes:
        """Ids to bytes; control tokens give nothing unless `special`."""
        return self._tokenizer.decode(tokens, special)

    # ---- evaluation ----

    def reset(self) -> None:
        """Empties the context."""
        with self._lock:
            self.cache.clear()
            self._ids.clear()
            self._logits = []

    def eval(self, tokens: Sequence[int]) -> None:
        """Appends tokens to the context and computes their logits; long prompts go in pieces.

        Raises:
            ContextError: they do not fit; nothing is evaluated then.
            ParameterError: no tokens, or an id outside the vocabulary.
            KeyboardInterrupt: Ctrl-C; the pieces that were finished stay in the context.
        """
        with self._lock:
            ids = [int(t) for t in self.session._check_tokens(tokens)]
            if self.n_tokens + len(ids) > self._n_ctx:
                raise ContextError(
                    f"{len(ids)} tokens after {self.n_tokens} pass the context of {self._n_ctx}"
                )
            for at in range(0, len(ids), self.n_batch):
                piece = ids[at : at + self.n_batch]
                last = at + len(piece) == len(ids)
                want = "all" if self._logits_all else "last" if last else "none"
                self._step(piece, want)

    def _step(self, piece: list[int], want: str) -> NDArray[np.float32]:
        logits = self.session.decode(piece, self.n_tokens, want=want)
        self._ids += piece
        # Without logits_all a piece before the last leaves none: the old ones are stale.
        self._logits = [*self._logits, logits] if self._logits_all else [logits[-1:]]
        return logits

    def keep(self, n: int) -> None:
        """Cuts the context down to its first n tokens.

        Raises:
            ParameterError: n is negative or more than there are.
        """
        with self._lock:
            if not 0 <= n <= self.n_tokens:
                raise ParameterError(f"keep: {n} is outside 0..{self.n_tokens}")
            if n == self.n_tokens:
                return
            self.cache.remove(0, n)
            del self._ids[n:]
            self._logits = [self.scores[:n]] if self._logits_all else []

    def sample(self, **params: Any) -> int:
        """Draws a token from the last logits.

        With a seed it is the seed's draw number `n_tokens`: the same context gives the same token,
        and a loop of `sample` and `eval` draws anew at each step.

        Args:
            **params: fields of `SamplingParams`: temperature (or temp), top_k, top_p, min_p, ...

        Raises:
            ParameterError: nothing was evaluated yet.
            SamplingError: parameters out of range, or logits that cannot be sampled from.
        """
        sampler = self._sampler(params)
        sampler.skip(self.n_tokens)
        return sampler.sample(self._last_logits(), self._ids)

    def _sampler(self, params: Mapping[str, Any]) -> Sampler:
        """The sampler that a call's keyword arguments describe."""
        given = dict(params)
        if "temp" in given and "temperature" not in given:  # llama_cpp has both spellings
            given["temperature"] = given.pop("temp")
        names = [f.name for f in fields(SamplingParams)]
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ParameterError(
                f"sampling: unknown argument {', '.join(unknown)}; there are {', '.join(names)}"
            )
        if given.get("seed") is None:
            given["seed"] = self._seed
        return Sampler(SamplingParams(**given), self.n_vocab())

    def _last_logits(self) -> NDArray[np.float32]:
        if not self._logits or not len(self._logits[-1]):
            raise ParameterError("there are no logits: nothing was evaluated yet")
        row: NDArray[np.float32] = self._logits[-1][-1]
        return row

    def generate(
        self, tokens: Sequence[int], *, reset: bool = True, **params: Any
    ) -> Iterator[int]:
        """Yields sampled ids without end, until the context is full.

        The part of the context that `tokens` begins with is kept and not evaluated again. When the
        context is used for something else between two tokens, the generator brings its own back.

        Args:
            tokens: the prompt.
            reset: forget the context that does not match; False appends the prompt to it.
            **params: fields of `SamplingParams`.

        Raises:
            ContextError: the prompt does not fit.
        """
        return self._generate(list(tokens), reset, self._sampler(params))

    def _generate(self, tokens: list[int], reset: bool, sampler: Sampler) -> Iterator[int]:
        with self._lock:
            self._start(tokens, reset)
            ids, timings = list(self._ids), self.timings
            token = self._draw(sampler)
        while True:
            yield token
            if len(ids) >= self._n_ctx:
                return
            with self._lock:
                started = time.perf_counter()
                if self._ids != ids:
                    self.keep(_common_prefix(self._ids, ids))
                ids.append(token)
                self.eval(ids[self.n_tokens :])
                timings.decode_tokens += 1
                timings.decode_s += time.perf_counter() - started
                token = self._draw(sampler)

    def _draw(self, sampler: Sampler) -> int:
        started = time.perf_counter()
        token = sampler.sample(self._last_logits(), self._ids)
        self.timings.token_ids.append(token)
        self.timings.decode_s += time.perf_counter() - started
        return token

    def _start(self, tokens: list[int], reset: bool) -> None:
        """Evaluates a prompt, reusing the context it shares."""
        with self._lock:
            self.timings.restart()
            if not tokens:
                raise ParameterError("generate: the prompt has no tokens")
            if reset:
                if len(tokens) > self._n_ctx:
                    raise ContextError(
                        f"a prompt of {len(tokens)} tokens does not fit "
                        f"the context of {self._n_ctx}"
                    )
                # The last prompt token is always evaluated: its logits are needed.
                self.keep(min(_common_prefix(self._ids, tokens), len(tokens) - 1))
                tokens = tokens[self.n_tokens :]
            started = time.perf_counter()
            self.eval(tokens)
            self.timings.prompt_tokens = len(tokens)
            self.timings.prompt_s = time.perf_counter() - started

    # ---- end ----

    @property
    def template(self) -> ChatTemplate:
        """The file's chat template.

        Raises:
            ChatTemplateError: the file has none, or one that does not compile.
        """
        if self._template is None:
            t = self._tokenizer
            bos, eos = (
                "" if i is None else t.token_bytes(i).decode("utf-8", "replace")
                for i in (t.bos_id, t.eos_id)
            )
            self._template = ChatTemplate.from_metadata(self.metadata, bos, eos, t.control_tokens)
        return self._template

    def close(self) -> None:
        """Lets go of model, mapped file and cache. Calling it twice is fine."""
        self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Llama {self.model_path!r}, {self.n_tokens} of {self._n_ctx} tokens>"


def _one(scale: float | None) -> str:
    return "1" if scale is None else f"{scale:.9g}"


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def _no_such_option(cls: type[Llama], names: list[str]) -> str:
    known = [p.name for p in inspect.signature(cls).parameters.values() if p.kind != p.VAR_KEYWORD]
    return (
        f"Llama() has no argument {', '.join(map(repr, names))}: pyggml runs on CPUs and has part "
        f"of llama_cpp's arguments; they are {', '.join(known)}"
    )


def _check_sizes(n_ctx: int, n_batch: int, n_threads: int | None) -> None:
    for name, value, low in (("n_ctx", n_ctx, 0), ("n_batch", n_batch, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 31:
            raise ParameterError(
                f"{name} must be an integer in [{low}, {(1 << 31) - 1}], got {value!r}"
            )
    if n_threads is not None and not 1 <= n_threads <= _core.MAX_THREADS:
        raise ParameterError(f"n_threads must be in [1, {_core.MAX_THREADS}], got {n_threads!r}")
