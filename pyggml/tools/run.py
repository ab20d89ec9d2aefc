"""Answers one prompt and measures it: what `pyggml run` does."""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyggml.errors import ParameterError

if TYPE_CHECKING:
    from pyggml.llm.model import Llama

KVScales: TypeAlias = str | dict[int, tuple[float | None, float | None]]

_WORDS: Final = ("file", "unit")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is opened; the fields are arguments of `pyggml.Llama`."""

    n_ctx: int = 2048
    n_batch: int = 512
    n_threads: int | None = None
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: bool = True
    kv_scales: KVScales = "file"
    check: bool = False

    def open(self, path: Path, **changed: Any) -> Llama:
        """Open a model with these options, some of them changed."""
        from pyggml.llm.model import Llama

        return Llama(path, **(asdict(self) | changed))


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen; the fields are arguments of `create_completion`."""

    max_tokens: int = 128
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """As keyword arguments."""
        return asdict(self)


@dataclass(slots=True)
class Report:
    """One answer and its figures; `as_json` is what `--json` prints."""

    text: str
    token_ids: list[int]
    finish_reason: str | None
    prompt_tokens: int
    prompt_tokens_per_second: float | None
    decode_tokens: int
    decode_tokens_per_second: float | None
    load_seconds: float
    peak_memory_bytes: int
    cache_bytes: int
    type_k: str
    type_v: str
    n_ctx: int
    f16_cache_bytes: int | None = field(default=None)

    def as_json(self) -> str:
        """One line of JSON."""
        known = {k: v for k, v in asdict(self).items() if k != "f16_cache_bytes" or v is not None}
        return json.dumps(known)

    def lines(self) -> list[str]:
        """The figures for people."""
        rows = [
            f"prompt  {self.prompt_tokens} tokens, {_speed(self.prompt_tokens_per_second)}",
            f"answer  {len(self.token_ids)} tokens, {_speed(self.decode_tokens_per_second)}",
            f"load    {self.load_seconds:.2f} s, peak memory {_mb(self.peak_memory_bytes)}",
            f"cache   {_mb(self.cache_bytes)} ({self.cache_name}, {self.n_ctx} tokens)",
        ]
        if self.f16_cache_bytes is not None:
            share = self.cache_bytes / self.f16_cache_bytes
            rows.append(f"        {_mb(self.f16_cache_bytes)} (f16): {share:.0%} of that is used")
        return rows

    @property
    def cache_name(self) -> str:
        """The cache's dtypes: one name when K and V agree."""
        return self.type_k if self.type_k == self.type_v else f"{self.type_k} / {self.type_v}"


def _speed(value: float | None) -> str:
    return "too short to measure" if value is None else f"{value:.1f} tokens/s"


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.2f} MB"


def parse_kv_scales(text: str) -> KVScales:
    """The value of `--kv-scales`.

    Args:
        text: "file", "unit", a JSON object {"layer": [k, v], ...} with numbers or null, or the
            path of a file with one.

    Raises:
        ParameterError: none of these; whether the numbers make sense the model decides.
        OSError: the file cannot be read.
    """
    if text in _WORDS:
        return text
    source = text if text.lstrip().startswith("{") else Path(text).expanduser().read_text("utf-8")
    try:
        pairs = json.loads(source, object_pairs_hook=_unique)
    except RecursionError:
        raise ParameterError("kv-scales: nested too deeply") from None
    except ValueError as error:
        raise ParameterError(f"kv-scales: not JSON: {error}") from None
    if not isinstance(pairs, dict):
        raise ParameterError('kv-scales: an object such as {"0": [0.02, null]} is expected')
    return {_layer(key): _pair(key, value) for key, value in pairs.items()}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a layer is there twice")
    return found


def _layer(key: str) -> int:
    if not (key.isascii() and key.isdigit()) or len(key) > 9:
        raise ParameterError(f"kv-scales: {key!r:.40} is not a layer number")
    return int(key)


def _pair(key: str, value: Any) -> tuple[float | None, float | None]:
    good = isinstance(value, list) and len(value) == 2 and all(_is_scale(v) for v in value)
    if not good:
        raise ParameterError(f"kv-scales: layer {key}: two numbers or nulls are expected")
    k, v = value
    return k, v


def _is_scale(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def answer(
    llm: Llama,
    prompt: str,
    sampling: SamplingOptions,
    write: Callable[[str], None],
    *,
    chat: bool = False,
    system: str | None = None,
) -> tuple[str, str | None]:
    """Generate, handing every piece of text to `write`; return the text and why it ended."""
    stream = _chat_stream(llm, prompt, system, sampling) if chat else _stream(llm, prompt, sampling)
    return collect(stream, write)


def collect(
    stream: Iterator[Mapping[str, Any]], write: Callable[[str], None]
) -> tuple[str, str | None]:
    """Read the chunks of a stream of either kind to its end."""
    pieces: list[str] = []
    reason: str | None = None
    for chunk in stream:
        choice = chunk["choices"][0]
        piece = choice["text"] if "text" in choice else choice["delta"].get("content")
        if piece:
            pieces.append(piece)
            write(piece)
        reason = choice["finish_reason"] or reason
    return "".join(pieces), reason


def _stream(llm: Llama, prompt: str, sampling: SamplingOptions) -> Iterator[Mapping[str, Any]]:
    chunks: Any = llm.create_completion(prompt, stream=True, **sampling.as_dict())
    return iter(chunks)


def _chat_stream(
    llm: Llama, prompt: str, system: str | None, sampling: SamplingOptions
) -> Iterator[Mapping[str, Any]]:
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": prompt})
    chunks: Any = llm.create_chat_completion(messages, stream=True, **sampling.as_dict())
    return iter(chunks)


def make_report(llm: Llama, options: ModelOptions, text: str, reason: str | None) -> Report:
    """The figures of the last answer."""
    timings = llm.timings
    return Report(
        text=text,
        token_ids=[int(i) for i in timings.token_ids],
        finish_reason=reason,
        prompt_tokens=timings.prompt_tokens,
        prompt_tokens_per_second=_rate(timings.prompt_tokens, timings.prompt_s),
        decode_tokens=timings.decode_tokens,
        decode_tokens_per_second=_rate(timings.decode_tokens, timings.decode_s),
        load_seconds=round(timings.load_s, 6),
        peak_memory_bytes=peak_memory(),
        cache_bytes=llm.cache_bytes,
        type_k=options.type_k,
        type_v=options.type_v,
        n_ctx=llm.n_ctx(),
    )


def _rate(count: int, seconds: float) -> float | None:
    """Count a second; None (null in JSON) when there is nothing to divide by."""
    if count <= 0 or not math.isfinite(seconds) or seconds <= 0:
        return None
    return round(count / seconds, 3)


def peak_memory() -> int:
    """The most bytes of memory that this process has had resident."""
    # getrusage also counts what the parent had before it started us; Linux knows better
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
