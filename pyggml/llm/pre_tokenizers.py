"""How a text is cut into words before byte-level BPE, by the name in `tokenizer.ggml.pre`.

A family is a sequence of regular expressions; each one isolates its matches within the pieces
that the one before it left. Adding a name is adding it to a row; adding a family is adding a row.
The expressions are those that the model makers published with their tokenizers; syntax Oniguruma.
"""

from __future__ import annotations

from dataclasses import dataclass

_SPACES = r"\s+(?!\S)|\s+"
_SUFFIXES = r"'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_SUFFIXES}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
_LLAMA3 = rf"(?i:{_SUFFIXES})|{_LETTERS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"(?i:{_SUFFIXES})|{_LETTERS}|\p{{N}}|{_SIGNS}|{_SPACES}"

# A word that knows case: "fooBar" is foo + Bar. Two forms, since one of its halves may be empty.
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_SIGNS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_SIGNS_SLASH}|{_SPACES}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+(?i:{_SUFFIXES})?|{_LEAD}{_UPPER}+{_LOWER}*(?i:{_SUFFIXES})?"
    rf"|\p{{N}}{{1,3}}|{_SIGNS_SLASH}|{_SPACES}"
)


@dataclass(frozen=True)
class PreTokenizer:
    """One family.

    Attributes:
        names: the values of `tokenizer.ggml.pre` that mean it.
        patterns: regular expressions, applied one after the other, matches isolated.
        ignore_merges: a word that is a token of its own is taken whole, without asking the merges.
        add_bos: whether a prompt starts with BOS where the file has no `add_bos_token`.
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_FAMILIES = (
    PreTokenizer(("default",), (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    PreTokenizer(
        (
            *("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat"),
            *("a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "exaone4", "trillion"),
            "granite-docling",
        ),
        (_GPT2,),
    ),
    PreTokenizer(
        (
            *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
            "minerva-7b",
        ),
        (r"\p{N}", _GPT2),
    ),
    PreTokenizer(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        (_LLAMA3,),
        ignore_merges=True,
        add_bos=True,
    ),
    PreTokenizer(("smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), (_LLAMA3,)),
    PreTokenizer(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"),
        (_QWEN2,),
    ),
    PreTokenizer(("tekken",), (_TEKKEN,), ignore_merges=True, add_bos=True),
    PreTokenizer(("gpt-4o", "llama4"), (_GPT4O,)),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: family for family in _FAMILIES for name in family.names
}
