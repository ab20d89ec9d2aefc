"""Files that are wrong: each is refused by a GGUFError that says what was found.

Counts and lengths near 2^63 must cost neither steps nor memory: every refusal here is bounded.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hostile import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U32,
    U64,
    array_key,
    bounded,
    build,
    header,
    info,
    key,
    save,
    string_key,
    text,
    u32_key,
)

from pyggml.errors import GGUFError, PyggmlError
from pyggml.gguf import GGUFFile

LINES = 2000  # of Python for one refusal
HUGE = [2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]


def refuse(path: Path, *words: str, **options: object) -> str:
    """Open the file, which must fail after few steps, without memory, with all the words."""
    with bounded(LINES, 1 << 20), pytest.raises(GGUFError) as caught:
        GGUFFile(path, **options)
    message = str(caught.value)
    assert message.startswith(f"GGUF file '{path}': ")
    for word in words:
        assert word in message, message
    assert len(message) < 1000
    assert message.isprintable()
    return message


def test_the_error_is_also_a_value_error():
    assert issubclass(GGUFError, ValueError)
    assert issubclass(GGUFError, PyggmlError)


# D1: bad magic, short file, versions


def test_an_empty_file(tmp_path):
    refuse(save(tmp_path, b""), "is empty (0 bytes)")


@pytest.mark.parametrize("size", range(1, 24))
def test_a_file_shorter_than_a_header(tmp_path, size):
    refuse(save(tmp_path, header()[:size]), "too short", "24 bytes", f"file has {size} bytes")


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"FUGG" + bytes(60), "byte-swapped"),
        (b"gguf" + bytes(60), "found b'gguf'"),
        (b"GGU\0" + bytes(60), "bad magic"),
        (b"GGX", "found b'GGX'"),
        (bytes(64), r"found b'\x00\x00\x00\x00'"),
        (b"<!DOCTYPE html><html>" + bytes(60), "HTML page"),
        (b"\n  <html lang='en'>" + bytes(60), "HTML page"),
        (b"\xef\xbb\xbf<!doctype HTML>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "PyTorch"),
        (struct.pack("<Q", 20) + b'{"a":{"dtype":"F32"}}', "safetensors"),
        (b"tjgg" + bytes(60), "GGJT"),
    ],
    ids=lambda v: repr(v)[:24],
)
def test_bad_magic_says_what_was_found(tmp_path, content, guess):
    refuse(save(tmp_path, content), "bad magic: expected b'GGUF'", guess)


@pytest.mark.parametrize("version", [0, 1, 4, 5, 255, 0x00000103, 0xFFFFFFFF])
def test_versions_that_are_not_supported(tmp_path, version):
    message = refuse(
        save(tmp_path, header(version=version)), f"version must be 2 or 3, found {version}"
    )
    assert "big-endian" not in message


@pytest.mark.parametrize("version", [0x02000000, 0x03000000, 0x00030000])
def test_big_endian_files_are_recognised(tmp_path, version):
    refuse(save(tmp_path, header(version=version)), "is a big-endian file", f"0x{version:08x}")


def test_a_whole_big_endian_file(tmp_path):
    content = b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + struct.pack(">Q", 1) + b"k" + bytes(64)
    refuse(save(tmp_path, content), "is a big-endian file", "only little-endian")


# D2: huge counts and lengths


@pytest.mark.parametrize("count", HUGE)
def test_huge_counts_in_the_header(tmp_path, count):
    body = [string_key("k", "v" * 100)]
    keys = header(body, n_keys=count)
    refuse(save(tmp_path, keys), f"count of {count} keys", f"file has {len(keys)} bytes")
    tensors = header(body, n_tensors=count)
    refuse(save(tmp_path, tensors), f"count of {count} tensors", f"file has {len(tensors)} bytes")


def test_counts_that_are_one_too_many_for_the_bytes_left(tmp_path):
    refuse(save(tmp_path, header(n_keys=1) + bytes(12)), "count of 1 keys")
    refuse(save(tmp_path, header(n_tensors=1) + bytes(23)), "count of 1 tensors")


@pytest.mark.parametrize("length", HUGE)
def test_huge_string_lengths(tmp_path, length):
    found = f"length {length}"
    for body, what in (
        (key("name", STRING, text("abc", length)), "key 'name'"),
        (text("abc", length) + bytes(20), "key 0 of 1"),
        (
            array_key("words", STRING, 2, text("a") + text("b", length)),
            "key 'words': string 1 of 2",
        ),
    ):
        content = header([body])
        refuse(save(tmp_path, content), what, found, f"file has {len(content)} bytes")
    content = header([], [text("abc", length) + bytes(40)])
    refuse(save(tmp_path, content), "name of tensor 0 of 1", found)


@pytest.mark.parametrize("extra", [1, 2, 7, 8, 1000, 2**29])
def test_strings_that_end_after_the_file(tmp_path, extra):
    words = f"length {3 + extra}"
    for body, what in (
        (key("name", STRING, text("abc", 3 + extra)), "key 'name'"),
        (array_key("words", STRING, 2, text("a") + text("abc", 3 + extra)), "string 1 of 2"),
        (array_key("words", STRING, 1, text("abc", 3 + extra)), "string 0 of 1"),
    ):
        content = header([body])
        refuse(save(tmp_path, content), what, words, f"file has {len(content)} bytes")


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize("kind", [U8, U32, F32, BOOL, U64, STRING])
def test_huge_array_lengths(tmp_path, count, kind):
    content = header([array_key("a", kind, count, bytes(64))])
    refuse(save(tmp_path, content), "key 'a'", f"array length {count}", "bytes are left")


def test_an_array_one_element_too_long(tmp_path):
    refuse(save(tmp_path, header([array_key("a", U32, 4, bytes(15))])), "array length 4")
    refuse(save(tmp_path, header([array_key("a", STRING, 4, bytes(31))])), "array length 4")
    # the count fits the bytes, the strings do not
    body = array_key("a", STRING, 3, text("0123456789012345"))
    refuse(save(tmp_path, header([body])), "key 'a': string 1 of 3 starts at")


def test_a_file_of_43_bytes_with_an_endless_array(tmp_path):
    content = header([array_key("abc", U8, 2**63, b"")])[:43]
    assert len(content) == 43
    refuse(save(tmp_path, content), "key 'abc'")


@pytest.mark.parametrize("count", [0, 1, 2, *HUGE])
def test_arrays_of_arrays_are_refused(tmp_path, count):
    nested = struct.pack("<IQ", U8, count) + bytes(32)
    content = header([array_key("deep", ARRAY, count, nested)])
    refuse(save(tmp_path, content), "key 'deep': arrays of arrays are not supported")


def test_a_deep_pile_of_arrays_does_not_recurse(tmp_path):
    content = header([array_key("deep", ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 100_000)])
    refuse(save(tmp_path, content), "arrays of arrays")


def test_the_limit_for_strings_can_be_set(tmp_path):
    path = save(tmp_path, build([string_key("k", "x" * 100)]))
    assert GGUFFile(path, max_string_bytes=100).metadata["k"] == "x" * 100
    refuse(path, "key 'k': length 100", "at most 99", max_string_bytes=99)
    path = save(tmp_path, build([array_key("k", STRING, 1, text("x" * 100))]))
    refuse(path, "key 'k': string 0 of 1 has length 100", "at most 99", max_string_bytes=99)


# metadata: keys, types, bools, text


def test_empty_and_long_keys(tmp_path):
    refuse(save(tmp_path, build([u32_key("", 1)])), "key 0 of 1 at 24 is empty")
    refuse(save(tmp_path, build([u32_key("k" * 65536, 1)])), "length 65536", "at most 65535")


@pytest.mark.parametrize("kind", [13, 14, 255, 2**31, 2**32 - 1])
def test_value_types_that_do_not_exist(tmp_path, kind):
    refuse(save(tmp_path, build([key("k", kind, bytes(8))])), "key 'k': type", f"found {kind}")
    body = array_key("k", kind, 1, bytes(8))
    refuse(save(tmp_path, build([body])), "key 'k': element type", f"found {kind}")


@pytest.mark.parametrize("value", [2, 3, 127, 128, 255])
def test_bools_that_are_neither_0_nor_1(tmp_path, value):
    path = save(tmp_path, build([key("k", BOOL, bytes([value]))]))
    refuse(path, "key 'k': a bool must be 0 or 1", f"found {value} at 37")
    path = save(tmp_path, build([array_key("k", BOOL, 3, bytes([0, 1, value]))]))
    refuse(path, "key 'k': a bool must be 0 or 1", f"found {value} at 51")


BAD_UTF8 = [b"\xff", b"ab\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80a"]


@pytest.mark.parametrize("raw", BAD_UTF8)
def test_text_that_is_not_utf8(tmp_path, raw):
    path = save(tmp_path, build([string_key("k", raw)]))
    refuse(path, "key 'k': not valid UTF-8", "found byte 0x")
    refuse(save(tmp_path, build([key(raw, U8, b"\0")])), "key 0 of 1: not valid UTF-8")
    tensor = build([], [info(raw, [1], 0, 0)], bytes(4))
    refuse(save(tmp_path, tensor), "name of tensor 0 of 1: not valid UTF-8")
    file = GGUFFile(save(tmp_path, build([array_key("k", STRING, 2, text("ok") + text(raw))])))
    for _ in range(2):
        with pytest.raises(GGUFError, match=r"key 'k': string 1: not valid UTF-8"):
            file.metadata["k"]


def test_names_are_escaped_and_cut_in_messages(tmp_path):
    name = "\x1b[31m" + "n" * 5000
    message = refuse(save(tmp_path, build([key(name, 99, b"")])), r"'\x1b[31m", "nnn...'")
    assert len(message) < 400


# D3 and D5: dimensions and products


@pytest.mark.parametrize(
    "ne", [(4, 0), (0,), (0, 0), (4, -1), (-1,), (-(2**63), 1), (32, 1, 1, 0)], ids=str
)
@pytest.mark.parametrize("kind", [0, 2, 24, 43])
def test_dimensions_that_are_zero_or_negative(tmp_path, ne, kind):
    path = save(tmp_path, build([], [info("t", ne, kind, 0)], bytes(64)))
    refuse(path, "tensor 't': every dimension must be positive", f"found {ne}")


def test_the_65_byte_file(tmp_path):
    content = header([], [info("t", (4, 0), 0, 0)])
    assert len(content) == 65
    refuse(save(tmp_path, content), "tensor 't'", "(4, 0)")


@pytest.mark.parametrize("n_dims", [5, 6, 255, 2**31, 2**32 - 1])
def test_too_many_dimensions(tmp_path, n_dims):
    path = save(tmp_path, build([], [info("t", [1] * 6, 0, 0, n_dims)], bytes(64)))
    refuse(path, "tensor 't': at most 4 dimensions", f"found {n_dims}")


BIG = 2**63 - 1
ELEMENTS = [
    (BIG, BIG),
    (2**42 + 1, 2**42 + 1),
    (4194305, 4194305, 211106198978564),
    (2**32, 2**32),
    (2**16, 2**16, 2**16, 2**16),
    (2**31, 2**31, 2),
    (BIG, BIG, BIG, BIG),
]


@pytest.mark.parametrize("ne", ELEMENTS, ids=str)
@pytest.mark.parametrize("kind", [0, 24, 43])
def test_products_of_dimensions_that_overflow(tmp_path, ne, kind):
    path = save(tmp_path, build([], [info("t", ne, kind, 0)], bytes(64)))
    refuse(path, "tensor 't'", f"{ne}", "more than 2^63-1 elements")


@pytest.mark.parametrize(
    ("ne", "kind"),
    [
        ((2**62 - 1,), 0),  # times 4 and padded wraps to 0 in 64 bits
        ((2**62,), 1),
        ((2**60, 4), 28),
        ((BIG,), 43),  # fits as it is, not when padded to 32
        ((BIG - 1,), 24),
        ((BIG // 32 * 32, 1), 8),
    ],
    ids=str,
)
def test_byte_counts_that_overflow_with_their_padding(tmp_path, ne, kind):
    path = save(tmp_path, build([], [info("t", ne, kind, 0)], bytes(64)))
    refuse(path, "tensor 't'", f"{ne}", "padded to 32", "more than 2^63-1 bytes")


@pytest.mark.parametrize(("ne", "kind"), [((2**42 + 1,), 0), ((2**62,), 43), ((2**40, 7), 24)])
def test_sizes_that_fit_an_int64_but_not_the_file(tmp_path, ne, kind):
    content = build([], [info("t", ne, kind, 0)], bytes(64))
    refuse(save(tmp_path, content), "tensor 't': offset 0", f"file has {len(content)} bytes")


@pytest.mark.parametrize(("kind", "block"), [(2, 32), (8, 32), (12, 256), (40, 64), (41, 128)])
def test_rows_that_are_no_multiple_of_the_block(tmp_path, kind, block):
    for ne in ((block + 1, 2), (1,), (block // 2, 2), ()):
        path = save(tmp_path, build([], [info("t", ne, kind, 0)], bytes(1024)))
        refuse(path, "tensor 't': rows of", f"multiple of {block}")


# D6: offsets


@pytest.mark.parametrize("offset", [64, 1 << 40, 2**63, 2**64 - 32, 2**64 - 64])
def test_offsets_outside_the_file(tmp_path, offset):
    content = build([], [info("t", [8], 0, offset)], bytes(64))
    refuse(
        save(tmp_path, content), f"tensor 't': offset {offset}", f"file has {len(content)} bytes"
    )


@pytest.mark.parametrize("offset", [1, 4, 8, 16, 31, 33, 2**64 - 1])
def test_offsets_that_are_not_aligned(tmp_path, offset):
    path = save(tmp_path, build([], [info("t", [1], 0, offset)], bytes(128)))
    refuse(path, f"tensor 't': offset {offset} is not a multiple of the alignment, 32")


@pytest.mark.parametrize(("first", "second"), [((16,), 0), ((16,), 32), ((9,), 32)])
def test_tensors_that_overlap(tmp_path, first, second):
    infos = [info("a", first, 0, 0), info("b", [1], 0, second)]
    for order in (infos, infos[::-1]):
        message = refuse(save(tmp_path, build([], order, bytes(128))), "overlaps", "'a'", "'b'")
        assert f"from {0}" in message


def test_a_file_cut_inside_its_last_tensor(tmp_path):
    whole = build([], [info("a", [8], 0, 0), info("b", [5], 0, 32)], bytes(52))
    assert len(GGUFFile(save(tmp_path, whole)).tensors) == 2
    start = len(whole) - 52
    for size in range(start, len(whole)):
        name = "b" if size >= start + 32 else "a"
        content = save(tmp_path, whole[:size])
        refuse(content, f"tensor '{name}': offset", f"file has {size} bytes", "end at")


# D7: alignment


@pytest.mark.parametrize("value", [0, 1, 2, 3, 4, 7, 12, 24, 33, 2**32 - 1])
def test_alignments_that_are_refused(tmp_path, value):
    path = save(tmp_path, build([u32_key("general.alignment", value)]))
    refuse(path, "key 'general.alignment'", "power of two and at least 8", f"found {value}")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (key("general.alignment", I32, struct.pack("<i", 32)), "i32"),
        (key("general.alignment", U64, struct.pack("<Q", 32)), "u64"),
        (string_key("general.alignment", "32"), "string"),
        (key("general.alignment", BOOL, b"\1"), "bool"),
        (key("general.alignment", F32, struct.pack("<f", 32)), "f32"),
        (array_key("general.alignment", U32, 1, struct.pack("<I", 32)), "u32 array"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_alignments_of_another_type(tmp_path, body, found):
    refuse(save(tmp_path, build([body])), "must be a u32", f"found a {found}")


def test_an_alignment_larger_than_the_file(tmp_path):
    keys = [u32_key("general.alignment", 1 << 31)]
    assert GGUFFile(save(tmp_path, build(keys))).alignment == 1 << 31
    path = save(tmp_path, build(keys, [info("t", [1], 0, 0)], bytes(64)))
    refuse(path, "tensor 't': offset 0 of the data at 2147483648")


# D8: duplicates


def test_a_key_that_is_there_twice(tmp_path):
    keys = [u32_key("a", 1), u32_key("b", 2), string_key("a", "x")]
    refuse(save(tmp_path, build(keys)), "key 'a' at", "is there twice")


def test_a_tensor_that_is_there_twice(tmp_path):
    name = "token_embd.weight"
    infos = [info(name, [8], 0, 0), info("x", [8], 0, 32), info(name, [8], 0, 64)]
    refuse(save(tmp_path, build([], infos, bytes(96))), f"tensor '{name}' at", "is there twice")


def test_tensor_names_that_are_refused(tmp_path):
    for name, words in (
        ("", "is empty"),
        ("a\0b", "holds a NUL"),
        ("n" * 64, "length 64"),
        ("\u00e9" * 32, "length 64"),
    ):
        path = save(tmp_path, build([], [info(name, [1], 0, 0)], bytes(32)))
        refuse(path, "name of tensor 0 of 1", words)
