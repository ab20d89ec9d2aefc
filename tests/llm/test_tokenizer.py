"""The tokenizer on small vocabularies made here: merges, special tokens, bytes, bad metadata."""

import importlib.util
import itertools
import random
import sys

import numpy as np
import pytest

from pyggml.errors import TokenizerError
from pyggml.llm.pre_tokenizers import PRE_TOKENIZERS
from pyggml.llm.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def alphabet():
    """Return GPT-2's byte characters, by its description: visible ones stand for themselves."""
    out, extra = [], 0
    for byte in range(256):
        if chr(byte).isprintable() and byte not in (0x20, 0xA0, 0xAD):
            out.append(chr(byte))
        else:
            out.append(chr(256 + extra))
            extra += 1
    return out


BYTES = alphabet()


def spell(text):
    return "".join(BYTES[b] for b in text.encode())


def metadata(merges=(), specials=(), pre="gpt-2", drop=b"", **keys):
    """Return a vocabulary: the bytes (ids 0 .. 255 if none is dropped), merges, then specials."""
    tokens = [BYTES[b] for b in range(256) if b not in drop]
    for merge in merges:
        joined = "".join(merge) if isinstance(merge, (list, tuple)) else merge.replace(" ", "")
        if joined not in tokens:
            tokens.append(joined)
    types = [NORMAL] * len(tokens) + [kind for _, kind in specials]
    tokens += [token for token, _ in specials]
    given = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": np.array(types, np.int32),
        "merges": list(merges),
        **keys,
    }
    return {f"tokenizer.ggml.{k}": v for k, v in given.items() if v is not None}


def build(*args, **keys):
    return Tokenizer.from_metadata(metadata(*args, **keys))


def pieces(tokenizer, text, **kwargs):
    ids = tokenizer.encode(text, **kwargs)
    return [tokenizer.token_bytes(i).decode(errors="replace") for i in ids]


CHAT = [("<|start|>", CONTROL), ("<|stop|>", CONTROL), ("<think>", USER), ("<unk>", UNKNOWN)]


# F1: merge order


def test_merges_apply_by_rank_not_from_the_left():
    assert pieces(build(["b c", "a b"]), "abc") == ["a", "bc"]
    assert pieces(build(["a b", "b c"]), "abc") == ["ab", "c"]


def slow_bpe(word, merges):
    """Merge the best-ranked pair, all its places, until none is left."""
    parts = list(word)
    while True:
        ranks = [merges.index(p) for p in itertools.pairwise(parts) if p in merges]
        if not ranks:
            return parts
        left, right = merges[min(ranks)]
        out = []
        for part in parts:
            # Pairs of equal letters go from the left, and no part is used twice.
            if out and out[-1] == (left, False) and part == right:
                out[-1] = (left + right, True)
            else:
                out.append((part, False))
        parts = [part for part, _ in out]


def test_random_merges_against_a_slow_bpe():
    rng = random.Random(1)
    for _ in range(40):
        known, merges = list("abc"), []
        while len(merges) < 8:
            pair = (rng.choice(known), rng.choice(known))
            if "".join(pair) not in known:
                merges.append(pair)
                known.append("".join(pair))
        tokenizer = build([" ".join(pair) for pair in merges])
        for _ in range(20):
            word = "".join(rng.choices("abc", k=rng.randint(1, 12)))
            assert pieces(tokenizer, word) == slow_bpe(word, merges)


def test_merges_as_pairs_and_as_strings():
    strings = ["b c", "a bc", "\u0120 x"]
    pairs = [["b", "c"], ("a", "bc"), ["\u0120", "x"]]
    one, two = build(strings), build(pairs)
    for text in ["abc", "xabc abc", " x x", "bc"]:
        assert one.encode(text) == two.encode(text)
    assert pieces(one, "abc x") == ["abc", " x"]


def test_a_merge_is_split_at_the_first_space_after_its_start():
    base = metadata()
    base["tokenizer.ggml.tokens"] += [" ", " a", "b ", "ab "]
    base["tokenizer.ggml.token_type"] = np.full(260, NORMAL, np.int32)
    # "  a" is " " + "a"; the pair has a piece that ends in a space.
    base["tokenizer.ggml.merges"] = ["  a", ["a", "b "]]
    tokenizer = Tokenizer.from_metadata(base)
    assert tokenizer.token_bytes(257) == b" a"
    base["tokenizer.ggml.merges"] = ["a b "]
    Tokenizer.from_metadata(base)  # "a" + "b "


def test_a_repeated_merge_keeps_its_first_rank():
    assert pieces(build(["b c", "a b", "b c"]), "abc") == ["a", "bc"]


@pytest.mark.parametrize(
    "merges",
    [None, "a b", ["ab"], [" ab"], ["a "], [["a"]], [["a", "b", "c"]], [["a", ""]], [7], [[1, 2]]],
)
def test_bad_merges(merges):
    with pytest.raises(TokenizerError, match="merge"):
        Tokenizer.from_metadata({**metadata(), **given(merges=merges)})


def test_merges_outside_the_vocabulary():
    with pytest.raises(TokenizerError, match=r"merge 0 \('a' \+ 'b'\)"):
        Tokenizer.from_metadata({**metadata(), **given(merges=["a b"])})


def test_no_merges_only_for_a_vocabulary_of_bytes():
    assert build().encode("abc") == [97, 98, 99]
    with pytest.raises(TokenizerError, match="merges is empty"):
        Tokenizer.from_metadata({**metadata(["a b"]), **given(merges=[])})


# Special tokens


def test_special_tokens_only_where_asked():
    tokenizer = build(specials=CHAT)
    text = "a<|stop|><|start|>b<unk>"
    assert tokenizer.encode(text, special=True) == [97, 257, 256, 98, 259]
    plain = tokenizer.encode(text)
    assert plain == list(text.encode())
    assert not {256, 257, 259} & set(plain)
    assert tokenizer.encode("x<think>y") == tokenizer.encode("x<think>y", special=True)
    assert tokenizer.encode("x<think>y") == [120, 258, 121]
    assert tokenizer.control_tokens == ("<|start|>", "<|stop|>", "<unk>")


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_plain_text_never_gives_a_control_token(pre):
    # Merges build the whole spelling, and ignore_merges would take it as a word of its own.
    spelling, merges, left = "stop", [], "s"
    for char in "top":
        merges.append(f"{left} {char}")
        left += char
    base = metadata(merges, pre=pre)
    place = base["tokenizer.ggml.tokens"].index(spelling)
    base["tokenizer.ggml.token_type"][place] = CONTROL
    tokenizer = Tokenizer.from_metadata(base)
    for text in ["stop", " stop", "stop stop", "a stop\n", "stops"]:
        assert place not in tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text.encode()
    assert tokenizer.encode("stop", special=True) == [place]


def test_the_longest_spelling_wins():
    tokenizer = build(specials=[("<a>", CONTROL), ("<a>b", CONTROL), ("a>b", CONTROL)])
    assert tokenizer.encode("<a>b", special=True) == [257]
    assert tokenizer.encode("<a>a>b", special=True) == [256, 258]
    assert tokenizer.encode("<a><a>bb", special=True) == [256, 257, 98]


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("<|im_end|>", USER),
        ("<|im_end|>", NORMAL),
        ("<|turn|>", USER),
        ("<\uff5cUser\uff5c>", USER),
    ],
)
def test_markers_of_a_wrong_type_are_control_tokens(spelling, kind):
    tokenizer = build(["a b"], specials=[(spelling, kind)])
    assert 257 not in tokenizer.encode(f"a{spelling}b")
    assert tokenizer.encode(spelling, special=True) == [257]
    assert tokenizer.decode([97, 257]) == b"a"


def test_segments_are_one_text():
    tokenizer = build(["a b", "ab c"], specials=CHAT, pre="default")
    start, stop = (tokenizer.encode(s, special=True)[0] for s in ("<|start|>", "<|stop|>"))
    # "ab" + "c" of two segments is one word; a marker split over two is none.
    assert tokenizer.encode_segments([("ab", True), ("c", False)]) == tokenizer.encode("abc")
    segments = [("<|start|>hi ", True), ("<|stop|>", False), ("<|st", True), ("op|><|stop|>", True)]
    text = "hi <|stop|><|stop|>"
    want = [start, *tokenizer.encode("hi <|stop|><|st" + "op|>"), stop]
    assert tokenizer.encode_segments(segments) == want
    assert tokenizer.decode(want) == text.encode()
    assert tokenizer.encode_segments([]) == []


def test_hostile_segments_equal_plain_text():
    rng = random.Random(2)
    tokenizer = build(["a b", "< |", "| >"], specials=CHAT)
    bits = ["<|stop|>", "<|", "stop", "|>", "ab", " ", "\n", "<|start|>", "<unk>"]
    for _ in range(200):
        text = "".join(rng.choices(bits, k=8))
        cut = rng.randint(0, len(text))
        ids = tokenizer.encode_segments([(text[:cut], False), (text[cut:], False)])
        assert ids == tokenizer.encode(text)
        assert bytes(tokenizer.decode(ids)) == text.encode()


# BOS and the ends


def test_bos():
    keys = {"bos_token_id": np.uint32(256), "add_bos_token": True}
    tokenizer = build(specials=CHAT, **keys)
    assert tokenizer.encode("a") == [256, 97]
    assert tokenizer.encode("a", add_bos=False) == [97]
    assert tokenizer.encode("") == [256]  # G1: an empty prompt is a run from BOS
    assert tokenizer.encode("", add_bos=False) == []
    # encode does as told; segments never double it
    assert tokenizer.encode("<|start|>a", special=True) == [256, 256, 97]
    assert tokenizer.encode_segments([("<|start|>a", True)]) == [256, 97]
    assert tokenizer.encode_segments([("<|start|>a", True)], add_bos=True) == [256, 97]
    assert tokenizer.encode_segments([("a", True)]) == [256, 97]
    assert tokenizer.encode_segments([("a", True)], add_bos=False) == [97]
    hostile = tokenizer.encode_segments([("<|start|>", False)])
    assert hostile[0] == 256
    assert hostile[1:] == list(b"<|start|>")


def test_bos_defaults():
    assert build(specials=CHAT, bos_token_id=256).add_bos is False
    assert build(specials=CHAT, bos_token_id=256, pre="llama-bpe").add_bos is True
    assert build(specials=CHAT, bos_token_id=256, pre="llama-bpe", add_bos_token=False).add_bos is (
        False
    )
    bare = build(pre="llama-bpe")
    assert (bare.add_bos, bare.bos_id, bare.eos_id) == (False, None, None)
    with pytest.raises(TokenizerError, match="bos_token_id"):
        bare.encode("a", add_bos=True)
    with pytest.raises(TokenizerError, match="bos_token_id is missing"):
        build(add_bos_token=True)


def test_end_of_generation():
    specials = [*CHAT, ("<|im_end|>", CONTROL), ("<|eom_id|>", CONTROL), ("<x>", CONTROL)]
    tokenizer = build(
        specials=specials, bos_token_id=256, eos_token_id=np.int64(257), eot_token_id=262
    )
    assert tokenizer.eos_id == 257
    assert tokenizer.eog_ids == {257, 260, 261, 262}


# Bytes


def test_any_bytes_survive():
    rng = random.Random(3)
    tokenizer = build(["a b", "\u00c3 \u00a9"])
    assert tokenizer.decode(tokenizer.encode(bytes(range(256)))) == bytes(range(256))
    bits = [b"ab", b"\xc3\xa9", b"\xff", b"\xe6\xad", b"\xaa", b" ", b"\xed\xa0\x80", b"\n"]
    for _ in range(300):
        data = b"".join(rng.choices(bits, k=6))
        assert tokenizer.decode(tokenizer.encode(data)) == data
    assert tokenizer.encode("ab\xe9".encode()) == tokenizer.encode("ab\xe9")
    assert tokenizer.encode(bytearray(b"ab")) == tokenizer.encode("ab")


def test_text_survives_every_pre_tokenizer():
    text = "Hello, w\xf6rld!! it's I'LL 12345 \u0664\u0665 \xbd\t\r\n\n  x  "
    text += "\u6b6a\U0001f999e\u0301 fooBar//\n"
    for pre in PRE_TOKENIZERS:
        tokenizer = build(["h e", "l l", "\u0120 \u0120"], pre=pre)
        assert tokenizer.decode(tokenizer.encode(text)) == text.encode(), pre


def test_lone_surrogates_become_replacement_characters():
    tokenizer = build()
    for lone in ["\ud800", "\udc80", "\udfff"]:
        assert tokenizer.decode(tokenizer.encode(f"a{lone}b")) == "a\ufffdb".encode()


def test_bytes_without_a_token_become_replacement_characters():
    tokenizer = build(drop=b"\x04\xf1\xff")
    for text, want in [
        ("a\x04b", "a\ufffdb"),
        ("\U00040000", "\ufffd"),
        ("\xe9\U00040000\xe9", "\xe9\ufffd\xe9"),
        (b"a\xff", "a\ufffd"),
        ("plain", "plain"),
    ]:
        assert tokenizer.decode(tokenizer.encode(text)) == want.encode()
    poor = build(drop=b"\x04\xbd")
    assert poor.decode(poor.encode("a")) == b"a"
    for text in ["a\x04", b"\xbd"]:
        with pytest.raises(TokenizerError, match="no token for byte 0x"):
            poor.encode(text)


def test_token_bytes():
    specials = [*CHAT, ("<0x0A>", BYTE), ("[PAD]", UNUSED), ("\u6b6a", NORMAL)]
    tokenizer = build(["\u0120 a"], specials=specials, eos_token_id=258)
    want = [
        b" a",
        b"<|start|>",
        b"<|stop|>",
        b"<think>",
        b"<unk>",
        b"\n",
        b"[PAD]",
        b"\xe6\xad\xaa",
    ]
    assert [tokenizer.token_bytes(256 + i) for i in range(8)] == want
    assert [tokenizer.token_bytes(b) for b in range(256)] == [bytes([b]) for b in range(256)]
    for i in range(tokenizer.n_vocab):
        assert tokenizer.visible_bytes(i) == tokenizer.decode([i])
        assert tokenizer.token_bytes(i) == tokenizer.decode([i], special=True)
    assert tokenizer.decode([256, 257, 258, 259, 260, 97]) == b" a<think>a"
    assert tokenizer.decode(np.array([97, 98])) == b"ab"
    assert tokenizer.decode([]) == b""


@pytest.mark.parametrize("bad", [-1, 256, 10**12, 1.0, "a", None])
def test_ids_outside_the_vocabulary(bad):
    tokenizer = build()
    for call in (
        tokenizer.token_bytes,
        tokenizer.visible_bytes,
        lambda i: tokenizer.decode([97, i]),
    ):
        with pytest.raises(TokenizerError, match="token id"):
            call(bad)


@pytest.mark.parametrize("bad", [None, 5, ["a"]])
def test_text_of_a_wrong_type(bad):
    with pytest.raises(TokenizerError, match="must be str or bytes"):
        build().encode(bad)


# Pre-tokenizers

CUTS = [  # text and its words, where each letter pair would merge if words did not divide it
    ("gpt-2", "a12345", ["a", "12345"]),
    ("smollm", "a123", ["a", "1", "2", "3"]),
    ("smollm", "a 12", ["a", " ", "1", "2"]),
    ("llama-bpe", "a12345", ["a", "123", "45"]),
    ("qwen2", "a123", ["a", "1", "2", "3"]),
    ("default", "12345", ["123", "45"]),
    ("tekken", "fooBar12", ["foo", "Bar", "1", "2"]),
    ("gpt-4o", "fooBar1234", ["foo", "Bar", "123", "4"]),
    ("gpt-2", "it's", ["it", "'s"]),
    ("gpt-2", "IT'S", ["IT", "'", "S"]),
    ("llama-bpe", "IT'S", ["IT", "'S"]),
    ("gpt-4o", "it's", ["it's"]),
    ("gpt-2", "a  b", ["a", " ", " b"]),
    ("gpt-2", "a!!b", ["a", "!!", "b"]),
    ("gpt-2", "a\n\nb", ["a", "\n", "\n", "b"]),
    ("llama-bpe", "a\n\nb", ["a", "\n\n", "b"]),
    ("llama-bpe", "(ab", ["(ab"]),
    ("llama-bpe", "!\n", ["!\n"]),
    ("gpt-2", "!\n", ["!", "\n"]),
    ("default", "a+b", ["a", "+", "b"]),
    ("tekken", "!/\n", ["!/\n"]),
]


@pytest.mark.parametrize(("pre", "text", "words"), CUTS)
def test_words(pre, text, words):
    # From each place on the text merges letter by letter, earlier places first: a word becomes
    # one token, and nothing but a word does.
    letters = [spell(char) for char in text]
    merges = []
    for start in range(len(text)):
        for end in range(start + 1, len(text)):
            merges.append(f"{''.join(letters[start:end])} {letters[end]}")
    assert pieces(build(list(dict.fromkeys(merges)), pre=pre), text) == words


def test_a_whole_word_is_taken_without_merges_where_the_family_says_so():
    base = {"specials": [("abc", NORMAL)], "merges": ["a b"]}
    assert pieces(build(**base, pre="llama-bpe"), "abc") == ["abc"]
    assert pieces(build(**base, pre="qwen2"), "abc") == ["ab", "c"]


def test_unknown_pre_tokenizer():
    with pytest.raises(TokenizerError, match=r"'kimi-k2'; known: .*llama-bpe.*smollm"):
        build(pre="kimi-k2")


def test_missing_pre_tokenizer_warns():
    with pytest.warns(UserWarning, match="using 'default'"):
        tokenizer = build(pre=None)
    assert tokenizer.pre == "default"


# Metadata


def given(**keys):
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


@pytest.mark.parametrize("model", ["llama", "bert", "t5", "rwkv", "none", 5])
def test_other_models_are_refused_by_name(model):
    with pytest.raises(TokenizerError, match=f"model {model!r} is not supported"):
        build(model=model)


def test_a_file_without_vocabulary():
    with pytest.raises(TokenizerError, match="no vocabulary"):
        Tokenizer.from_metadata({})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": []}, "tokens is missing"),
        ({"tokens": "ab"}, "tokens is missing"),
        ({"tokens": [b"a", "b"]}, "token 0 is a bytes"),
        ({"tokens": ["a", "\ud800"]}, "token 1 .* no UTF-8 form"),
        ({"tokens": ["a", "b", "a"]}, "tokens 0 and 2 are both 'a'"),
        ({"token_type": np.ones(255, np.int32)}, "one integer for each of 256"),
        ({"token_type": np.ones((256, 1), np.int32)}, "one integer"),
        ({"token_type": np.ones(256, np.float32)}, "one integer"),
        ({"token_type": np.full(256, 7)}, r"token_type\[0\] is 7"),
        ({"token_type": np.full(256, -1)}, r"token_type\[0\] is -1"),
        ({"bos_token_id": 256}, r"bos_token_id 256 is outside 0 \.\. 255"),
        ({"eos_token_id": -1}, "eos_token_id -1"),
        ({"eot_token_id": 1.5}, "eot_token_id is 1.5"),
    ],
)
def test_bad_metadata(keys, message):
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_metadata({**metadata(), **given(**keys)})


def test_empty_tokens_only_hold_their_place():
    tokenizer = build(specials=[("", UNUSED), ("", CONTROL), ("<|end|>", CONTROL)])
    assert tokenizer.encode("a<|end|>", special=True) == [97, 258]
    assert tokenizer.decode([256, 257, 97], special=True) == b"a"


def test_without_token_types_markers_go_by_spelling():
    tokenizer = build(["a b"], specials=[("<|x|>", NORMAL), ("<y>", NORMAL)], token_type=None)
    assert tokenizer.control_tokens == ("<|x|>",)
    assert 257 not in tokenizer.encode("<|x|>")


def test_the_library_is_imported_when_a_tokenizer_is_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # import fails now
    spec = importlib.util.spec_from_file_location(
        "twin", sys.modules[Tokenizer.__module__].__file__
    )
    twin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(twin)
    with pytest.raises(ImportError):
        twin.Tokenizer.from_metadata(metadata())
