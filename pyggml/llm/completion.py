"""Completions in OpenAI's shapes, on top of `Llama.generate`."""

# The mixin has one heir, Llama, and says so by the type of self; mypy wants a base class there.
# mypy: disable-error-code="misc"

from __future__ import annotations

import time
import uuid
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pyggml.errors import ContextError, ParameterError
from pyggml.llm.stream import TextStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pyggml.llm.model import Llama
    from pyggml.llm.sampler import Sampler

MAX_LOGPROBS = 1000
_Probs: TypeAlias = dict[str, Any]  # token, logprob, top: {token: logprob}


class _Piece:
    """What one step of a completion adds: text that is safe to show, and how it ended.

    `logprobs` has an entry for each token of the step, or is None when they are not wanted.
    """

    __slots__ = ("finish", "logprobs", "text")

    def __init__(self, text: str, finish: str | None, logprobs: list[_Probs] | None) -> None:
        self.text = text
        self.finish = finish
        self.logprobs = logprobs


class CompletionMixin:
    """`create_completion` and `create_chat_completion` of `Llama`."""

    def create_completion(
        self: Llama,
        prompt: str | bytes | Sequence[int],
        *,
        max_tokens: int | None = 16,
        stop: str | Sequence[str] | None = None,
        echo: bool = False,
        logprobs: int | None = None,
        stream: bool = False,
        **sampling: Any,
    ) -> Any:
        """Continues a prompt.

        Args:
            prompt: text, or token ids. An empty one is BOS alone.
            max_tokens: tokens to generate at most. None or -1: until the context is full. 0: none.
                A context of n holds n tokens; the last one sampled needs no room, so a prompt of p
                tokens can be followed by n - p + 1.
            stop: strings that end the text, not included in it. Empty ones are ignored.
            echo: begin the text with the prompt, and the log probabilities with the prompt's.
            logprobs: also report the log probabilities of this many most likely tokens. The first
                token of a prompt has none.
            stream: return an iterator of chunks.
            **sampling: fields of `SamplingParams`: temperature, top_k, top_p, min_p, ...

        Returns:
            A `text_completion` dict, or an iterator of such with the text in pieces.

        Raises:
            ContextError: the prompt does not fit the context.
            ParameterError, SamplingError: an argument out of its range.
        """
        ids = self._prompt_ids(prompt)
        head = _header("cmpl", "text_completion", self.model_path)
        pieces = self._complete(ids, max_tokens, stop, logprobs, sampling, echo)
        if stream:
            return _text_chunks(head, pieces)
        with self._lock:
            text, finish, probs = _collect(pieces)
            usage = self._usage(ids)
        choice = {
            "text": text,
            "index": 0,
            "logprobs": _text_logprobs(probs),
            "finish_reason": finish,
        }
        return {**head, "choices": [choice], "usage": usage}

    def __call__(self: Llama, prompt: str | bytes | Sequence[int], **kwargs: Any) -> Any:
        """The same as `create_completion(prompt, **kwargs)`."""
        return self.create_completion(prompt, **kwargs)

    def create_chat_completion(
        self: Llama,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: bool = False,
        top_logprobs: int = 0,
        stream: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Any:
        """Answers a chat, rendered by the file's template.

        Spellings of special tokens inside the messages stay plain text.

        Args:
            messages: dicts with `role` and `content`.
            max_tokens: as in `create_completion`.
            stop: as in `create_completion`.
            logprobs: report the log probability of each generated token.
            top_logprobs: and of this many most likely ones.
            stream: return an iterator of chunks.
            template_kwargs: further variables of the template.
            **sampling: fields of `SamplingParams`; temperature is 0.2 unless given.

        Returns:
            A `chat.completion` dict, or an iterator of `chat.completion.chunk` dicts.

        Raises:
            ChatTemplateError: no template, no messages, or messages that the template refuses.
            ContextError, ParameterError, SamplingError: as in `create_completion`.
        """
        segments = self.template.render(messages, **(template_kwargs or {}))
        ids = self.tokenizer.encode_segments(segments)
        if "temp" not in sampling:
            sampling.setdefault("temperature", 0.2)
        kind = "chat.completion.chunk" if stream else "chat.completion"
        head = _header("chatcmpl", kind, self.model_path)
        wanted = top_logprobs if logprobs else None
        pieces = self._complete(ids, max_tokens, stop, wanted, sampling)
        if stream:
            return _chat_chunks(head, pieces)
        with self._lock:
            text, finish, probs = _collect(pieces)
            usage = self._usage(ids)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": _chat_logprobs(probs),
            "finish_reason": finish,
        }
        return {**head, "choices": [choice], "usage": usage}

    def _prompt_ids(self: Llama, prompt: str | bytes | Sequence[int]) -> list[int]:
        if isinstance(prompt, str | bytes):
            prompt = self.tokenize(prompt, special=True)
        if not hasattr(prompt, "__len__"):
            raise ParameterError(
                f"the prompt must be text or token ids, not {type(prompt).__name__}"
            )
        if len(prompt):
            return [int(t) for t in self.session._check_tokens(prompt)]
        if self.tokenizer.bos_id is None:
            raise ParameterError("the prompt is empty and the model has no BOS token")
        return [self.tokenizer.bos_id]

    def _usage(self: Llama, ids: list[int]) -> dict[str, int]:
        n = len(self.timings.token_ids)
        return {
            "prompt_tokens": len(ids),
            "completion_tokens": n,
            "total_tokens": len(ids) + n,
        }

    def _complete(
        self: Llama,
        ids: list[int],
        max_tokens: int | None,
        stop: str | Sequence[str] | None,
        logprobs: int | None,
        sampling: dict[str, Any],
        echo: bool = False,
    ) -> Iterator[_Piece]:
        """Checks the arguments now, generates when iterated."""
        room = self.n_ctx() - len(ids) + 1
        if room < 1:
            raise ContextError(
                f"a prompt of {len(ids)} tokens does not fit the context of {self.n_ctx()}"
            )
        limit = room if max_tokens is None or max_tokens == -1 else max_tokens
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise ParameterError(f"max_tokens must be >= 0, -1 or None, got {max_tokens!r}")
        if logprobs is not None and not (
            isinstance(logprobs, int) and 0 <= logprobs <= MAX_LOGPROBS
        ):
            raise ParameterError(f"logprobs must be in [0, {MAX_LOGPROBS}], got {logprobs!r}")
        sampler = self._sampler(sampling)
        text = TextStream(self.tokenizer.visible_bytes, [] if stop is None else stop)
        pieces = self._pieces(ids, min(limit, room), text, logprobs, sampler)
        return chain(self._echo(ids, logprobs), pieces) if echo else pieces

    def _echo(self: Llama, ids: list[int], logprobs: int | None) -> Iterator[_Piece]:
        """The prompt as a piece; its log probabilities need it evaluated whole."""
        shown = self.detokenize(ids, special=True).decode("utf-8", "replace")
        if logprobs is None:
            yield _Piece(shown, None, None)
            return
        first = self.tokenizer.token_bytes(ids[0]).decode("utf-8", "replace")
        probs: list[_Probs] = [{"token": first, "logprob": None, "top": None}]
        with self._lock:
            self.reset()
            for at in range(0, len(ids), self.n_batch):
                rows = self._step(ids[at : at + self.n_batch], "all")
                following = ids[at + 1 : at + 1 + len(rows)]
                probs += [
                    self._logprobs(t, logprobs, row)
                    for t, row in zip(following, rows, strict=False)
                ]
        yield _Piece(shown, None, probs)

    def _pieces(
        self: Llama,
        ids: list[int],
        limit: int,
        text: TextStream,
        logprobs: int | None,
        sampler: Sampler,
    ) -> Iterator[_Piece]:
        if limit == 0:
            self._start(ids, reset=True)
            yield _Piece("", "length", None)
            return
        tokens = self._generate(ids, True, sampler)
        for n in range(1, limit + 1):
            # Not held across a yield: the consumer may go away, or be another thread next time.
            with self._lock:
                token = next(tokens)
                probs = None
                if logprobs is not None:
                    probs = [self._logprobs(token, logprobs, self._last_logits())]
            ended = token in self.tokenizer.eog_ids
            shown = "" if ended else text.push(token)
            if ended or text.stopped is not None or n == limit:
                shown += text.finish()
                finish = "stop" if ended or text.stopped is not None else "length"
                yield _Piece(shown, finish, probs)
                return
            yield _Piece(shown, None, probs)

    def _logprobs(self: Llama, token: int, n: int, row: NDArray[np.float32]) -> _Probs:
        """Log probability of the token and of the n most likely, from the unfiltered logits."""
        logits = row.astype(np.float64)
        logits -= logits.max()
        log_p = logits - np.log(np.exp(logits).sum())
        best = np.argsort(-log_p, kind="stable")[:n]
        spell = self.tokenizer.token_bytes
        return {
            "token": spell(token).decode("utf-8", "replace"),
            "logprob": float(log_p[token]),
            "top": {spell(int(i)).decode("utf-8", "replace"): float(log_p[i]) for i in best},
        }


def _header(prefix: str, kind: str, model: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4()}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def _collect(pieces: Iterator[_Piece]) -> tuple[str, str | None, list[_Probs] | None]:
    """Joins the pieces: text, finish reason, log probabilities."""
    parts, probs, finish = [], None, None
    for piece in pieces:
        parts.append(piece.text)
        finish = piece.finish
        if piece.logprobs is not None:
            probs = (probs or []) + piece.logprobs
    return "".join(parts), finish, probs


def _text_logprobs(probs: list[_Probs] | None, start: int = 0) -> dict[str, Any] | None:
    """OpenAI's parallel lists; `start` is where the first token begins in the text."""
    if probs is None:
        return None
    tokens = [p["token"] for p in probs]
    return {
        "tokens": tokens,
        "token_logprobs": [p["logprob"] for p in probs],
        "top_logprobs": [p["top"] for p in probs],
        "text_offset": list(accumulate(map(len, tokens), initial=start))[:-1],
    }


def _chat_logprobs(probs: list[_Probs] | None) -> dict[str, Any] | None:
    if probs is None:
        return None
    return {
        "content": [
            {
                "token": p["token"],
                "logprob": p["logprob"],
                "top_logprobs": [{"token": t, "logprob": q} for t, q in p["top"].items()],
            }
            for p in probs
        ]
    }


def _text_chunks(head: dict[str, Any], pieces: Iterator[_Piece]) -> Iterator[dict[str, Any]]:
    at = 0  # where the next token begins in the whole text
    for piece in pieces:
        if not piece.text and piece.finish is None and piece.logprobs is None:
            continue
        probs = _text_logprobs(piece.logprobs, at)
        at += sum(len(p["token"]) for p in piece.logprobs or ())
        choice = {"text": piece.text, "index": 0, "logprobs": probs, "finish_reason": piece.finish}
        yield {**head, "choices": [choice]}


def _chat_chunks(head: dict[str, Any], pieces: Iterator[_Piece]) -> Iterator[dict[str, Any]]:
    def chunk(
        delta: dict[str, Any], probs: Any = None, finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": probs, "finish_reason": finish}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant"})
    for piece in pieces:
        if piece.text or piece.logprobs is not None:
            yield chunk({"content": piece.text}, _chat_logprobs(piece.logprobs))
        if piece.finish is not None:
            yield chunk({}, finish=piece.finish)
