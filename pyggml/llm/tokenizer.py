"""Text to token ids and back, with the vocabulary of a GGUF file.

Byte-level BPE by the `tokenizers` library, which is imported when a Tokenizer is built. The
library is never told about control tokens: they are not in its vocabulary, so no text can come
out as one of their ids. `encode(special=True)` finds their spellings itself, before BPE.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from pyggml.errors import TokenizerError
from pyggml.llm.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

_KEY = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_MAX_TYPE = 6

# Spellings that end a turn or a text in the known model families, whatever the file says.
_EOG_SPELLINGS = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<EOT>",
        "_<EOT>",
        "<|return|>",
        "<|call|>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    }
)
_LOOKS_SPECIAL = re.compile(r"<[|\uff5c].*[|\uff5c]>", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_RAW_BYTES = re.compile("([\udc80-\udcff]+)")  # what the surrogateescape handler leaves


def _byte_alphabet() -> list[str]:
    """Return GPT-2's character for each of the 256 bytes: itself if visible, else U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(b) if b in visible else chr(next(hidden)) for b in range(256)]


_ALPHABET = _byte_alphabet()
_BYTE_OF = {char: byte for byte, char in enumerate(_ALPHABET)}


class Tokenizer:
    """A byte-level BPE tokenizer; build it with `from_metadata`.

    Safe to use from several threads: nothing changes after it is built.

    Attributes:
        n_vocab: number of tokens V; ids are 0 .. V-1.
        bos_id: id of the begin-of-text token, or None.
        eos_id: id of the end-of-text token, or None.
        eog_ids: ids after which generation ends: eos, eot, eom and the known spellings.
        add_bos: whether `encode` starts with BOS when it is not told.
        control_tokens: spellings of the control tokens, which user content must not reach.
        pre: name of the pre-tokenizer.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        types: Sequence[int],
        merges: Iterable[tuple[str, str]],
        pre: PreTokenizer,
        pre_name: str,
        special_ids: Mapping[str, int],
        add_bos: bool | None,
    ) -> None:
        """Build from parts that `from_metadata` has checked."""
        self.n_vocab = len(tokens)
        self.pre = pre_name
        self.bos_id = special_ids.get("bos")
        self.eos_id = special_ids.get("eos")
        ends = {special_ids[name] for name in ("eos", "eot", "eom") if name in special_ids}
        ends.update(i for i, token in enumerate(tokens) if token in _EOG_SPELLINGS)
        self.eog_ids = frozenset(ends)
        if add_bos and self.bos_id is None:
            raise TokenizerError("tokenizer: add_bos_token is true but bos_token_id is missing")
        self.add_bos = (pre.add_bos and self.bos_id is not None) if add_bos is None else add_bos

        self._tokens = tokens
        self._types = types
        self._hidden = _control_ids(tokens, types, set(special_ids.values()))
        controls = {tokens[i]: i for i in sorted(self._hidden) if tokens[i]}
        self._controls = controls
        self.control_tokens = tuple(controls)
        # Longest first: at one place the longer spelling wins.
        spellings = sorted(controls, key=len, reverse=True)
        self._find = re.compile(f"({'|'.join(map(re.escape, spellings))})") if spellings else None

        apart = self._hidden | {i for i, kind in enumerate(types) if kind == _BYTE}
        vocab = {token: i for i, token in enumerate(tokens) if token and i not in apart}
        users = [t for i, t in enumerate(tokens) if t in vocab and types[i] == _USER_DEFINED]
        self._bpe = _build_bpe(tokens, vocab, merges, pre, users)
        self._byte_ids = [vocab.get(char) for char in _ALPHABET]
        self._missing = bytes(b for b, i in enumerate(self._byte_ids) if i is None)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build the tokenizer that a GGUF file describes.

        Args:
            metadata: the file's metadata; the keys under `tokenizer.ggml.` are used. A file
                without `pre` gets "default", with a warning. A file without `token_type` has
                control tokens where the spelling is `<|...|>`.

        Raises:
            TokenizerError: not a byte-level BPE vocabulary, an unknown pre-tokenizer, or keys
                that are missing or contradict each other.
        """
        model = metadata.get(f"{_KEY}model")
        if model is None:
            raise TokenizerError("tokenizer: the file has no vocabulary (tokenizer.ggml.model)")
        if model != "gpt2":
            raise TokenizerError(
                f"tokenizer: model {model!r} is not supported; only 'gpt2' (byte-level BPE) is"
            )
        pre_name = metadata.get(f"{_KEY}pre")
        if pre_name is None:
            warnings.warn("tokenizer: no tokenizer.ggml.pre, using 'default'", stacklevel=2)
            pre_name = "default"
        if pre_name not in PRE_TOKENIZERS:
            known = ", ".join(sorted(PRE_TOKENIZERS))
            raise TokenizerError(f"tokenizer: unknown pre-tokenizer {pre_name!r}; known: {known}")
        tokens = _read_tokens(metadata)
        types = _read_types(metadata, tokens)
        add_bos = metadata.get(f"{_KEY}add_bos_token")
        return cls(
            tokens=tokens,
            types=types,
            merges=_read_merges(metadata, tokens, types),
            pre=PRE_TOKENIZERS[pre_name],
            pre_name=pre_name,
            special_ids=_read_special_ids(metadata, len(tokens)),
            add_bos=None if add_bos is None else bool(add_bos),
        )

    def encode(
        self, text: str | bytes, add_bos: bool | None = None, special: bool = False
    ) -> list[int]:
        """Turn a text into token ids.

        Bytes that are not valid UTF-8 keep their value: each becomes the token of that one byte.
        Two things cannot be kept and become U+FFFD: a lone surrogate in a `str`, and a character
        with a byte that the vocabulary has no token for.

        Args:
            text: the text; `bytes` are read as UTF-8.
            add_bos: start with BOS; None follows the file. BOS is not looked for in the text.
            special: parse spellings of control tokens. User-defined tokens are always parsed.

        Raises:
            TokenizerError: wrong type, BOS asked for but absent, or a text that the vocabulary
                cannot express even as U+FFFD.
        """
        ids = self._encode([(text, special)])
        return self._with_bos(ids) if self._wants_bos(add_bos) else ids

    def encode_segments(
        self, segments: Iterable[tuple[str, bool]], add_bos: bool | None = None
    ) -> list[int]:
        """Turn the pieces of a rendered chat into token ids.

        The pieces are one text: neighbours are encoded together, only control tokens divide it.

        Args:
            segments: pairs (text, whether control tokens are parsed in it).
            add_bos: start with BOS; None follows the file. Never doubled: a text that starts
                with the BOS token itself is left alone.

        Raises:
            TokenizerError: as `encode`.
        """
        ids = self._encode(segments)
        wanted = self._wants_bos(add_bos) and ids[:1] != [self.bos_id]
        return self._with_bos(ids) if wanted else ids

    def decode(self, ids: Iterable[SupportsIndex], special: bool = False) -> bytes:
        """Return the bytes of a sequence of ids, perhaps ending inside a UTF-8 character.

        Args:
            ids: token ids.
            special: include the spellings of control tokens.

        Raises:
            TokenizerError: an id is not an integer in 0 .. V-1.
        """
        checked = map(self._check_id, ids)
        return b"".join(self._bytes(i) for i in checked if special or i not in self._hidden)

    def token_bytes(self, token_id: SupportsIndex) -> bytes:
        """Return the bytes of one token; for a control token, its spelling.

        Raises:
            TokenizerError: the id is not an integer in 0 .. V-1.
        """
        return self._bytes(self._check_id(token_id))

    def visible_bytes(self, token_id: SupportsIndex) -> bytes:
        """Return what one token adds to `decode(ids)`: nothing for a control token.

        Raises:
            TokenizerError: the id is not an integer in 0 .. V-1.
        """
        i = self._check_id(token_id)
        return b"" if i in self._hidden else self._bytes(i)

    def _check_id(self, token_id: SupportsIndex) -> int:
        try:
            i = operator.index(token_id)
        except TypeError:
            raise TokenizerError(f"tokenizer: token id {token_id!r} is not an integer") from None
        if not 0 <= i < self.n_vocab:
            raise TokenizerError(f"tokenizer: token id {i} is outside 0 .. {self.n_vocab - 1}")
        return i

    def _bytes(self, i: int) -> bytes:
        token, kind = self._tokens[i], self._types[i]
        if kind == _BYTE and re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", token):
            return bytes([int(token[3:5], 16)])
        if i not in self._hidden and kind != _USER_DEFINED:
            try:
                return bytes([_BYTE_OF[char] for char in token])
            except KeyError:
                pass  # not spelled in the byte alphabet: it stands for itself
        return token.encode()

    def _wants_bos(self, add_bos: bool | None) -> bool:
        return self.add_bos if add_bos is None else add_bos

    def _with_bos(self, ids: list[int]) -> list[int]:
        if self.bos_id is None:
            raise TokenizerError("tokenizer: BOS was asked for but the file has no bos_token_id")
        return [self.bos_id, *ids]

    def _encode(self, segments: Iterable[tuple[str | bytes, bool]]) -> list[int]:
        ids: list[int] = []
        plain: list[str] = []
        for text, special in segments:
            for piece in self._split(_as_text(text), special):
                if piece not in self._controls or not special:
                    plain.append(piece)
                    continue
                ids += self._encode_plain("".join(plain))
                plain.clear()
                ids.append(self._controls[piece])
        return ids + self._encode_plain("".join(plain))

    def _split(self, text: str, special: bool) -> list[str]:
        return self._find.split(text) if special and self._find else [text]

    def _encode_plain(self, text: str) -> list[int]:
        """Encode without control tokens; U+DC80 .. U+DCFF stand for bytes 0x80 .. 0xFF."""
        ids: list[int] = []
        for i, piece in enumerate(_RAW_BYTES.split(text)):
            if i % 2:
                ids += self._encode_raw(piece.encode(errors="surrogateescape"))
            elif piece:
                ids += self._bpe.encode(self._expressible(piece), add_special_tokens=False).ids
        return ids

    def _encode_raw(self, data: bytes) -> Iterator[int]:
        for byte in data:
            i = self._byte_ids[byte]
            if i is None:
                yield from self._bpe.encode(self._replacement(byte), add_special_tokens=False).ids
            else:
                yield i

    def _expressible(self, text: str) -> str:
        """Replace characters that need a byte without a token (BPE would drop them silently)."""
        if not self._missing:
            return text
        data = text.encode()
        if len(data.translate(None, self._missing)) == len(data):
            return text
        missing = frozenset(self._missing)
        hit = ((char, missing.intersection(char.encode())) for char in text)
        return "".join(self._replacement(min(bad)) if bad else char for char, bad in hit)

    def _replacement(self, byte: int) -> str:
        if any(self._byte_ids[b] is None for b in "\ufffd".encode()):
            raise TokenizerError(
                f"tokenizer: the vocabulary has no token for byte 0x{byte:02X}, nor for U+FFFD"
            )
        return "\ufffd"


def _as_text(text: str | bytes) -> str:
    """Return a str in which surrogates, if any, stand for invalid bytes."""
    if isinstance(text, str):
        return _SURROGATE.sub("\ufffd", text)
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text).decode(errors="surrogateescape")
    raise TokenizerError(f"tokenizer: text must be str or bytes, not {type(text).__name__}")


def _control_ids(
    tokens: Sequence[str], types: Sequence[int], special_ids: set[int]
) -> frozenset[int]:
    """Return the ids that text must not reach by accident.

    Converters sometimes mark a turn marker as user-defined or normal; taken at their word, user
    content could end its own turn. So a spelling that can only be a marker counts as one.
    """
    return frozenset(
        i
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL)
        or token in _EOG_SPELLINGS
        or (kind == _USER_DEFINED and (i in special_ids or _LOOKS_SPECIAL.fullmatch(token)))
    )


def _build_bpe(
    tokens: Sequence[str],
    vocab: dict[str, int],
    merges: Iterable[tuple[str, str]],
    pre: PreTokenizer,
    user_defined: Sequence[str],
) -> Any:
    """Return a `tokenizers.Tokenizer` that knows the tokens of `vocab` and no others."""
    from tokenizers import AddedToken, Regex, pre_tokenizers
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

    everything = frozenset(tokens)
    kept: dict[tuple[str, str], None] = {}  # in rank order; a repeated merge keeps its first rank
    for rank, (left, right) in enumerate(merges):
        parts = (left, right, left + right)
        if all(part in vocab for part in parts):
            kept.setdefault((left, right))
        elif not everything.issuperset(parts):
            raise TokenizerError(
                f"tokenizer: merge {rank} ({left!r} + {right!r}) uses or makes a piece that is not"
                " in the vocabulary"
            )
    splits = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in pre.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    try:
        backend = Backend(BPE(vocab, list(kept), ignore_merges=pre.ignore_merges))
        backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
        backend.add_tokens([AddedToken(t, normalized=False, special=False) for t in user_defined])
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"tokenizer: the vocabulary was refused: {error}") from error
    return backend


def _read_tokens(metadata: Mapping[str, Any]) -> list[str]:
    tokens = metadata.get(f"{_KEY}tokens")
    if tokens is None or isinstance(tokens, (str, bytes)) or len(tokens) == 0:
        raise TokenizerError("tokenizer: tokenizer.ggml.tokens is missing or empty")
    seen: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TokenizerError(
                f"tokenizer: token {i} is a {type(token).__name__}, expected a string"
            )
        if _SURROGATE.search(token):
            raise TokenizerError(f"tokenizer: token {i} ({token!r}) has no UTF-8 form")
        first = seen.setdefault(token, i)
        if first != i and token:  # empty ones stand for ids that no text reaches
            raise TokenizerError(f"tokenizer: tokens {first} and {i} are both {token!r}")
    return list(tokens)


def _read_types(metadata: Mapping[str, Any], tokens: Sequence[str]) -> list[int]:
    types = metadata.get(f"{_KEY}token_type")
    if types is None:
        return [_CONTROL if _LOOKS_SPECIAL.fullmatch(token) else _NORMAL for token in tokens]
    array = np.asarray(types)
    if array.shape != (len(tokens),) or array.dtype.kind not in "iu":
        raise TokenizerError(
            f"tokenizer: token_type is {array.shape} {array.dtype}, expected one integer for each"
            f" of {len(tokens)} tokens"
        )
    bad = np.flatnonzero((array < 0) | (array > _MAX_TYPE))
    if bad.size:
        raise TokenizerError(
            f"tokenizer: token_type[{bad[0]}] is {array[bad[0]]}, outside 0 .. {_MAX_TYPE}"
        )
    return [int(kind) for kind in array]


def _read_merges(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> list[tuple[str, str]]:
    merges = metadata.get(f"{_KEY}merges")
    if merges is None or isinstance(merges, (str, bytes)):
        raise TokenizerError("tokenizer: tokenizer.ggml.merges is missing")
    if len(merges) == 0:
        for token, kind in zip(tokens, types, strict=True):
            if kind == _NORMAL and len(token) > 1:
                raise TokenizerError(
                    f"tokenizer: tokenizer.ggml.merges is empty, so {token!r} cannot be made"
                )
    return [_read_merge(rank, merge) for rank, merge in enumerate(merges)]


def _read_merge(rank: int, merge: Any) -> tuple[str, str]:
    """Read "left right" or a pair; only a pair's pieces can hold a space after their start."""
    if isinstance(merge, str):
        # From position 1: a left piece may itself begin with a space.
        cut = merge.find(" ", 1)
        pair: Sequence[Any] = (merge[:cut], merge[cut + 1 :]) if cut > 0 else ()
    else:
        pair = merge if isinstance(merge, (list, tuple)) else ()
    if len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
        raise TokenizerError(f"tokenizer: merge {rank} is {merge!r}, expected two pieces")
    return (pair[0], pair[1])


def _read_special_ids(metadata: Mapping[str, Any], n_vocab: int) -> dict[str, int]:
    ids: dict[str, int] = {}
    for name in ("bos", "eos", "eot", "eom", "unknown", "padding"):
        value = metadata.get(f"{_KEY}{name}_token_id")
        if value is None:
            continue
        try:
            ids[name] = operator.index(value)
        except TypeError:
            raise TokenizerError(
                f"tokenizer: {name}_token_id is {value!r}, expected an integer"
            ) from None
        if not 0 <= ids[name] < n_vocab:
            raise TokenizerError(
                f"tokenizer: {name}_token_id {ids[name]} is outside 0 .. {n_vocab - 1}"
            )
    return ids
