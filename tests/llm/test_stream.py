"""Streaming text: fault cases F6 (split characters) and F7 (stop strings)."""

import random

import pytest

from pyggml.errors import ParameterError
from pyggml.llm.stream import TextStream


def stream_of(pieces, stop=()):
    """Return (texts of the pushes, text of finish, the stream)."""
    stream = TextStream(pieces.__getitem__, stop)
    shown = [stream.push(i) for i in range(len(pieces))]
    return shown, stream.finish(), stream


def oracle(data, stops):
    """Cut the whole text, with no thought of streaming."""
    hits = [(data.find(stop), -len(stop), stop) for stop in stops if stop and stop in data]
    if not hits:
        return data.decode(errors="replace"), None
    place, _, stop = min(hits)
    return data[:place].decode(errors="replace"), stop.decode(errors="replace")


@pytest.mark.parametrize(
    ("pieces", "shown", "tail"),
    [
        ([b"\xe6\xad", b"\xaa"], ["", "\u6b6a"], ""),
        ([b"\xf0\x9f", b"\xa6", b"\x99"], ["", "", "\U0001f999"], ""),
        ([b" \xc3", b"\xa9"], [" ", "\xe9"], ""),
        ([b"a", b"\xe6\xad"], ["a", ""], "\ufffd"),
        ([b"\xff"], ["\ufffd"], ""),
        ([b"\xe6\xad", b"x"], ["", "\ufffdx"], ""),
        ([b"", b"a", b""], ["", "a", ""], ""),
        ([], [], ""),
    ],
)
def test_split_characters(pieces, shown, tail):
    assert stream_of(pieces)[:2] == (shown, tail)


def test_every_cut_of_every_kind_of_utf8():
    text = "a\xe9\u20ac\U0001f999\xf1\u6b6a\r\n\x00\U0010ffff\ufdd0e\u0301"
    data = (
        text.encode() + b"\xc3(\xa0\xa1\xe2\x28\xa1\xf0\x90\x28\xbc\xed\xa0\x80\xc0\xaf\xf5\xf4\x90"
    )
    want = data.decode(errors="replace")
    for cut in range(len(data) + 1):
        shown, tail, _ = stream_of([data[:cut], data[cut:]])
        assert "".join(shown) + tail == want
    shown, tail, _ = stream_of([data[i : i + 1] for i in range(len(data))])
    assert "".join(shown) + tail == want


def test_random_bytes_decode_as_the_whole():
    rng = random.Random(6)
    alphabet = [
        b"a",
        b"\x80",
        b"\xc3",
        b"\xa9",
        b"\xe2",
        b"\x82",
        b"\xac",
        b"\xf0",
        b"\x9f",
        b"\xff",
    ]
    for _ in range(2000):
        pieces = [b"".join(rng.choices(alphabet, k=rng.randint(0, 4))) for _ in range(6)]
        shown, tail, _ = stream_of(pieces)
        assert "".join(shown) + tail == b"".join(pieces).decode(errors="replace")


def test_only_incomplete_characters_are_held():
    stream = TextStream(lambda i: b"")
    text = "a\xe9\u20ac\U0001f999"
    shown = ""
    for i in range(len(text.encode())):
        shown += stream.push_bytes(text.encode()[i : i + 1])
        whole = text.encode()[: i + 1].decode(errors="ignore")
        assert shown == whole


@pytest.mark.parametrize(
    ("stop", "pieces", "shown", "tail", "stopped"),
    [
        (["DEFGHIJ"], ["DEF", "G", "HI", "J"], ["", "", "", ""], "", "DEFGHIJ"),
        (["DEFGHIJ"], ["DEF", "X"], ["", "DEFX"], "", None),
        (["DEFGHIJ"], ["ABC", "DEF"], ["ABC", ""], "DEF", None),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], "", "aab"),
        (["\nUser:"], ["x\nUs", "er:z"], ["x", ""], "", "\nUser:"),
        (["b"], ["abc", "d"], ["a", ""], "", "b"),
        (["z", "bc"], ["abcz"], ["a"], "", "bc"),  # the earliest, not the first in the list
        (["bc", "bcd"], ["a", "bc", "de"], ["a", "", ""], "", "bcd"),  # the longest there
        (["bc", "bcd"], ["a", "bc"], ["a", ""], "", "bc"),
        (["xabc", "ab"], ["xab", "c"], ["", ""], "", "xabc"),
        (["xabc", "ab"], ["xab", "d"], ["", "x"], "", "ab"),
        ([""], ["a", "b"], ["a", "b"], "", None),
        (["", "b"], ["a", "b"], ["a", ""], "", "b"),
        ("ab", ["a", "b"], ["", ""], "", "ab"),  # one string, not its letters
        ([b"\xa9"], ["\xe9x"], ["\ufffd"], "", "\ufffd"),  # bytes may cut a character
        (["\u20ac"], ["a\u20acb"], ["a"], "", "\u20ac"),
    ],
)
def test_stop_strings(stop, pieces, shown, tail, stopped):
    got, end, stream = stream_of([piece.encode() for piece in pieces], stop)
    assert (got, end, stream.stopped) == (shown, tail, stopped)


def test_a_stop_decided_at_the_end_is_reported():
    stream = TextStream(lambda i: b"x\n", ["\n", "\n\n"])
    assert stream.push(0) == "x"
    assert stream.stopped is None
    assert stream.finish() == ""
    assert stream.stopped == "\n"


def test_nothing_comes_after_the_end():
    stream = TextStream(lambda i: b"ab", ["b"])
    assert stream.push(0) == "a"
    assert stream.stopped == "b"
    assert [stream.push(0), stream.push_bytes(b"zz"), stream.finish(), stream.finish()] == [""] * 4
    stream = TextStream(lambda i: b"\xe6")
    assert [stream.push(0), stream.finish(), stream.finish(), stream.push(0)] == [
        "",
        "\ufffd",
        "",
        "",
    ]


def test_stop_in_the_prompt_has_no_effect():
    stream = TextStream([b"User", b":", b" hi"].__getitem__, ["User:"])
    # The prompt ended in "User"; only what is pushed counts.
    assert [stream.push(1), stream.push(2)] == [":", " hi"]
    assert stream.stopped is None


def test_random_pieces_agree_with_the_whole_text():
    rng = random.Random(7)
    hits = 0
    for _ in range(6000):
        letters = rng.choice([b"ab", b"abc", "a\xe9".encode(), b"a\xc3\xa9\xff"])
        stops = [bytes(rng.choices(letters, k=rng.randint(0, 5))) for _ in range(rng.randint(0, 3))]
        data = bytes(rng.choices(letters, k=rng.randint(0, 14)))
        cuts = sorted(rng.choices(range(len(data) + 1), k=rng.randint(0, 6)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        shown, tail, stream = stream_of(pieces, stops)
        text, stopped = oracle(data, stops)
        assert ("".join(shown) + tail, stream.stopped) == (text, stopped), (pieces, stops)
        hits += stopped is not None
    assert 1000 < hits < 5500  # both outcomes were met


def test_no_push_shows_what_could_still_be_a_stop():
    rng = random.Random(8)
    for _ in range(500):
        stop = bytes(rng.choices(b"ab", k=rng.randint(1, 5)))
        stream, fed, shown = TextStream(lambda i: b"", [stop]), b"", ""
        for _ in range(12):
            piece = bytes(rng.choices(b"ab", k=1))
            fed += piece
            shown += stream.push_bytes(piece)
            if stream.stopped is None:
                held = max(k for k in range(len(stop)) if fed.endswith(stop[:k]))
                assert shown == fed[: len(fed) - held].decode()


def test_errors_of_token_bytes_pass_through():
    with pytest.raises(IndexError):
        TextStream([b"a"].__getitem__).push(5)


@pytest.mark.parametrize("stop", [[1], [None], ["\ud800"]])
def test_stop_strings_of_a_wrong_kind(stop):
    with pytest.raises(ParameterError, match="stop string"):
        TextStream(lambda i: b"", stop)
