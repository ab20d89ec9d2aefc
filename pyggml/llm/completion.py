"""Completions in OpenAI's shapes, on top of `Llama.generate`."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml.errors import ContextError, ParameterError
from pyggml.llm.sampler import Sampler, SamplingParams
from pyggml.llm.stream import TextStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyggml.llm.model import Llama

MAX_LOGPROBS = 1000


class _Piece:
    """What one step of a completion adds: text that is safe to show, and how it ended."""

    __slots__ = ("finish", "logprobs", "text")

    def __init__(self, text: str, finish: str | None, logprobs: dict[str, Any] | None) -> None:
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
            echo: begin the text with the prompt.
            logprobs: also report the log probabilities of this many most likely tokens.
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
        shown = self.detokenize(ids, special=True).decode("utf-8", "replace") if echo else ""
        pieces = self._complete(ids, max_tokens, stop, logprobs, sampling)
        if stream:
            return _text_chunks(head, pieces, shown)
        text, finish, probs = _collect(pieces)
        choice = {"text": shown + text, "index": 0, "logprobs": probs, "finish_reason": finish}
        return {**head, "choices": [choice], "usage": self._usage(ids)}

    def __call__(self: Llama, prompt: str | bytes | Sequence[int], **kwargs: Any) -> Any:
        """The same as `create_completion`."""
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
        sampling.setdefault("temperature", 0.2)
        kind = "chat.completion.chunk" if stream else "chat.completion"
        head = _header("chatcmpl", kind, self.model_path)
        wanted = top_logprobs if logprobs else None
        pieces = self._complete(ids, max_tokens, stop, wanted, sampling)
        if stream:
            return _chat_chunks(head, pieces)
        text, finish, probs = _collect(pieces)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": _chat_logprobs(probs),
            "finish_reason": finish,
        }
        return {**head, "choices": [choice], "usage": self._usage(ids)}

    def _prompt_ids(self: Llama, prompt: str | bytes | Sequence[int]) -> list[int]:
        if isinstance(prompt, str | bytes):
            ids = self.tokenize(prompt, special=True)
        else:
            ids = [int(t) for t in prompt]
        if not ids:
            if self.tokenizer.bos_id is None:
                raise ParameterError("the prompt is empty and the model has no BOS token")
            ids = [self.tokenizer.bos_id]
        return ids

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
        if logprobs is not None and not 0 <= logprobs <= MAX_LOGPROBS:
            raise ParameterError(f"logprobs must be in [0, {MAX_LOGPROBS}], got {logprobs!r}")
        if sampling.get("seed") is None:
            sampling["seed"] = self._seed
        try:
            params = SamplingParams(**sampling)
        except TypeError as e:
            raise ParameterError(f"sampling: {e}") from None
        sampler = Sampler(params, self.n_vocab())
        text = TextStream(self.tokenizer.visible_bytes, [] if stop is None else stop)
        return self._pieces(ids, min(limit, room), text, logprobs, sampler)

    def _pieces(
        self: Llama,
        ids: list[int],
        limit: int,
        text: TextStream,
        logprobs: int | None,
        sampler: Sampler,
    ) -> Iterator[_Piece]:
        with self._lock:
            if limit == 0:
                self._start(ids, reset=True)
                yield _Piece("", "length", None)
                return
            for n, token in enumerate(self._generate(ids, True, sampler), start=1):
                probs = None if logprobs is None else self._logprobs(token, logprobs)
                ended = token in self.tokenizer.eog_ids
                shown = "" if ended else text.push(token)
                if ended or text.stopped is not None or n == limit:
                    shown += text.finish()
                    finish = "stop" if ended or text.stopped is not None else "length"
                    yield _Piece(shown, finish, probs)
                    return
                yield _Piece(shown, None, probs)

    def _logprobs(self: Llama, token: int, n: int) -> dict[str, Any]:
        """The token's log probability and those of the n most likely, from the unfiltered logits."""
        logits = self.scores[-1].astype(np.float64)
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


def _collect(pieces: Iterator[_Piece]) -> tuple[str, str | None, dict[str, Any] | None]:
    """Joins the pieces: text, finish reason, and OpenAI's parallel lists of log probabilities."""
    parts, probs, finish = [], [], None
    for piece in pieces:
        parts.append(piece.text)
        finish = piece.finish
        if piece.logprobs is not None:
            probs.append(piece.logprobs)
    return "".join(parts), finish, _text_logprobs(probs)


def _text_logprobs(probs: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not probs:
        return None
    tokens = [p["token"] for p in probs]
    offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
    return {
        "tokens": tokens,
        "token_logprobs": [p["logprob"] for p in probs],
        "top_logprobs": [p["top"] for p in probs],
        "text_offset": offsets,
    }


def _chat_logprobs(probs: dict[str, Any] | None) -> dict[str, Any] | None:
    if probs is None:
        return None
    rows = zip(probs["tokens"], probs["token_logprobs"], probs["top_logprobs"], strict=True)
    return {
        "content": [
            {
                "token": token,
                "logprob": logprob,
                "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()],
            }
            for token, logprob, top in rows
        ]
    }


def _text_chunks(
    head: dict[str, Any], pieces: Iterator[_Piece], shown: str
) -> Iterator[dict[str, Any]]:
    for piece in pieces:
        text, shown = shown + piece.text, ""
        if not text and piece.finish is None and piece.logprobs is None:
            continue
        probs = _text_logprobs([piece.logprobs] if piece.logprobs is not None else [])
        choice = {"text": text, "index": 0, "logprobs": probs, "finish_reason": piece.finish}
        yield {**head, "choices": [choice]}


def _chat_chunks(head: dict[str, Any], pieces: Iterator[_Piece]) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], probs: Any = None, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": probs, "finish_reason": finish}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant"})
    for piece in pieces:
        probs = _text_logprobs([piece.logprobs] if piece.logprobs is not None else [])
        if piece.text or probs is not None:
            yield chunk({"content": piece.text}, _chat_logprobs(probs))
        if piece.finish is not None:
            yield chunk({}, finish=piece.finish)
