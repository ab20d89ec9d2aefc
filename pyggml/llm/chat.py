"""Messages to the text a model expects, by the template in its file.

A template mixes its own markers (special tokens) with what users wrote. Users must not be able to
write markers: before rendering, each special spelling inside the messages is replaced by a code
of noncharacters; afterwards the codes turn back into the spelling, in segments of their own that
the tokenizer encodes as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from pyggml.errors import ChatTemplateError
from pyggml.llm.chat_sandbox import MAX_RENDERED, ChatEnvironment

MAX_TEMPLATE = 1 << 20  # characters

# A code is START, five digits for each character of the spelling, END; the digits, base 30, are
# the other noncharacters of the block. So a code says what it stands for, without a table.
_START, _END = "\ufdd0", "\ufdd1"
_ZERO, _BASE, _DIGITS = 0xFDD2, 30, 5
_STRAY = re.compile("[\ufdd0-\ufdef]")
_CODE = re.compile(f"{_START}((?:[\ufdd2-\ufdef]{{{_DIGITS}}})+){_END}")

# What a marker looks like where the caller does not say which ones the model has.
_MARKER_SHAPES = (r"<\|[^<>]{1,64}\|>", "<\uff5c[^<>]{1,64}\uff5c>", r"</?s>")


class ChatTemplate:
    """A compiled chat template. Safe to use from several threads."""

    def __init__(
        self,
        source: str | None,
        bos_token: str = "",
        eos_token: str = "",
        special_tokens: Iterable[str] | None = None,
    ) -> None:
        """Compile a template.

        Args:
            source: the jinja2 text, as in `tokenizer.chat_template`.
            bos_token: spelling of the begin-of-text token, for the template.
            eos_token: spelling of the end-of-text token.
            special_tokens: spellings that only the template may write, usually
                `Tokenizer.control_tokens`. None protects BOS, EOS and whatever is spelled like a
                marker: `<|...|>`, `<s>`, `</s>`.

        Raises:
            ChatTemplateError: no template, one that is too long, or one that does not compile.
        """
        if not source:
            raise ChatTemplateError("chat template: the file has none (tokenizer.chat_template)")
        if not isinstance(source, str):
            raise ChatTemplateError(
                f"chat template: it is a {type(source).__name__}, expected a string"
            )
        if len(source) > MAX_TEMPLATE:
            raise ChatTemplateError(
                f"chat template: {len(source)} characters, the limit is {MAX_TEMPLATE}"
            )
        if _STRAY.search(source):
            raise ChatTemplateError("chat template: it has noncharacters U+FDD0 .. U+FDEF")
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._codes = _Codes({bos_token, eos_token}, special_tokens)
        try:
            self._template = ChatEnvironment().load(source)
        except Exception as error:
            raise _failed("it does not compile", error) from error

    @classmethod
    def from_metadata(
        cls,
        metadata: Mapping[str, Any],
        bos_token: str = "",
        eos_token: str = "",
        special_tokens: Iterable[str] | None = None,
        name: str | None = None,
    ) -> ChatTemplate:
        """Compile the template of a GGUF file.

        Args:
            metadata: the file's metadata.
            bos_token: as for `ChatTemplate`.
            eos_token: as for `ChatTemplate`.
            special_tokens: as for `ChatTemplate`.
            name: of a further template of the file ("tool_use"), None for the usual one.

        Raises:
            ChatTemplateError: as `ChatTemplate`, or there is none of that name.
        """
        key = "tokenizer.chat_template" + (f".{name}" if name else "")
        source = metadata.get(key)
        if not source:
            raise ChatTemplateError(f"chat template: the file has none ({key})")
        return cls(source, bos_token, eos_token, special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> list[tuple[str, bool]]:
        """Render a chat.

        Args:
            messages: mappings with a `role` and a `content`: a string, or parts
                `{"type": "text", "text": ...}`, which are joined by newlines. Content may be
                missing beside `tool_calls`. Further keys reach the template as they are.
            add_generation_prompt: end with the opening of the assistant's turn.
            **kwargs: further variables (`tools`, `documents`, ...); texts in them are treated
                like message content.

        Returns:
            Segments (text, special): for `Tokenizer.encode_segments`. Special tokens are to be
            parsed only in those with special True; joined, the texts are the rendered chat.

        Raises:
            ChatTemplateError: messages of a wrong form, or a template that fails, refuses the
                messages, or does what a template must not.
        """
        _check_messages(messages)
        try:
            variables = {key: self._codes.hide(value) for key, value in kwargs.items()}
            variables.update(
                self._tokens,
                messages=[self._codes.hide(_joined(message)) for message in messages],
                add_generation_prompt=add_generation_prompt,
            )
            pieces: list[str] = []
            length = 0
            for piece in self._template.generate(ChatEnvironment.start(variables)):
                pieces.append(piece)
                length += len(piece)
                if length > MAX_RENDERED:
                    raise ChatTemplateError(
                        f"chat template: the result has more than {MAX_RENDERED} characters"
                    )
        except ChatTemplateError:
            raise
        except Exception as error:
            raise _failed("rendering failed", error) from error
        return self._codes.show("".join(pieces))


class _Codes:
    """Replaces what content must not contain by codes, and back."""

    def __init__(self, known: set[str], special_tokens: Iterable[str] | None) -> None:
        shapes = _MARKER_SHAPES if special_tokens is None else ()
        spellings = {s for s in {*known, *(special_tokens or ())} if s}
        longest_first = sorted(spellings, key=lambda s: (-len(s), s))
        # Noncharacters of the content itself are coded, too: what is left after is ours.
        self._find = re.compile("|".join([*map(re.escape, longest_first), *shapes, _STRAY.pattern]))

    def hide(self, value: Any) -> Any:
        """Return a copy of a JSON-like value with codes in its texts and keys."""
        if isinstance(value, str):
            return self._find.sub(lambda match: _encode(match[0]), value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide(item) for item in value]
        return value

    @staticmethod
    def show(text: str) -> list[tuple[str, bool]]:
        """Divide a rendered text at its codes."""
        segments: list[tuple[str, bool]] = []
        own: list[str] = []
        for i, piece in enumerate(_CODE.split(text)):
            original = _decode(piece) if i % 2 else ""
            if i % 2 == 0:
                # What is left of a code that the template cut (content[:9]) is nobody's text.
                own.append(_STRAY.sub("", piece))
            elif _STRAY.fullmatch(original):
                own.append(original)
            else:
                segments += [("".join(own), True), (original, False)]
                own.clear()
        segments.append(("".join(own), True))
        return [segment for segment in segments if segment[0]]


def _encode(text: str) -> str:
    digits = []
    for char in text:
        code = ord(char)
        for place in reversed(range(_DIGITS)):
            digits.append(chr(_ZERO + code // _BASE**place % _BASE))
    return f"{_START}{''.join(digits)}{_END}"


def _decode(digits: str) -> str:
    codes = []
    for start in range(0, len(digits), _DIGITS):
        code = 0
        for digit in digits[start : start + _DIGITS]:
            code = code * _BASE + ord(digit) - _ZERO
        codes.append(chr(min(code, 0x10FFFF)))  # a template may have put digits together
    return "".join(codes)


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, (list, tuple)):
        raise ChatTemplateError(
            f"chat: messages is a {type(messages).__name__}, expected a list of mappings"
        )
    if not messages:
        raise ChatTemplateError("chat: messages is empty")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ChatTemplateError(
                f"chat: message {i} is a {type(message).__name__}, expected a mapping"
            )
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise ChatTemplateError(f"chat: message {i} has role {role!r}, expected a string")
        content = message.get("content")
        if isinstance(content, (list, tuple)):
            _check_parts(i, content)
        elif content is None:
            if not message.get("tool_calls") and not message.get("function_call"):
                raise ChatTemplateError(f"chat: message {i} ({role!r}) has no content")
        elif not isinstance(content, str):
            raise ChatTemplateError(
                f"chat: content of message {i} is a {type(content).__name__}, expected a string or"
                " a list of parts"
            )


def _check_parts(i: int, parts: Sequence[Any]) -> None:
    for j, part in enumerate(parts):
        where = f"chat: part {j} of message {i}"
        if not isinstance(part, Mapping):
            raise ChatTemplateError(f"{where} is a {type(part).__name__}, expected a mapping")
        kind = part.get("type")
        if kind != "text":
            raise ChatTemplateError(f"{where} has type {kind!r}, only 'text' is supported")
        if not isinstance(part.get("text"), str):
            raise ChatTemplateError(f"{where} has no text")


def _joined(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with its parts as one string."""
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        content = "\n".join(part["text"] for part in content)
    return {**message, "content": content}


def _failed(what: str, error: Exception) -> ChatTemplateError:
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if line is not None else ""
    kind = "" if type(error) is TemplateError else f"{type(error).__name__}: "
    return ChatTemplateError(f"chat template: {what}{where}: {kind}{str(error)[:500]}")
