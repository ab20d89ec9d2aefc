"""Type id 43 means different layouts in different programs (D11): only plain codes are taken."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from hostile import build, info, save, string_key, u32_key

from pyggml.errors import GGUFError
from pyggml.gguf import TENSOR_TYPES, GGUFFile

N = 1024
# bytes that other programs give N values under this id
LAYOUTS = [
    (N // 32 * 34, "f16 scale in blocks of 34"),
    (N // 128 * 132, "f32 scale in blocks of 132"),
]


def two_tensors(n_bytes: int, keys: tuple[bytes, ...] = ()) -> bytes:
    """An f8 tensor of N values that takes n_bytes, then an f32 one."""
    after = -(-n_bytes // 32) * 32
    infos = [info("w", [N // 8, 8], 43, 0), info("next", [8], 0, after)]
    return build(list(keys), infos, bytes(after + 32))


MARKER = (u32_key("pyggml.fp8.version", 1), string_key("pyggml.fp8.layout", "plain"))


@pytest.mark.parametrize("keys", [(), MARKER, MARKER[:1], MARKER[1:]], ids=lambda k: str(len(k)))
def test_plain_codes_are_taken_with_or_without_the_marker(tmp_path, keys):
    file = GGUFFile(save(tmp_path, two_tensors(N, keys)))
    assert file.tensors["w"].data.dtype == ml_dtypes.float8_e4m3fn


def test_all_256_codes_come_through(tmp_path):
    codes = np.arange(256, dtype=np.uint8)
    content = build([], [info("w", [16, 16], 43, 0)], codes.tobytes())
    data = GGUFFile(save(tmp_path, content)).tensors["w"].data
    np.testing.assert_array_equal(data.view(np.uint8).reshape(-1), codes)
    assert float(data[0, 1]) == 2.0**-9
    assert float(data[7, 14]) == 448.0
    assert np.isnan(data.astype(np.float32)).sum() == 2


@pytest.mark.parametrize(("n_bytes", "origin"), LAYOUTS)
def test_other_layouts_are_named(tmp_path, n_bytes, origin):
    for content in (
        two_tensors(n_bytes),
        two_tensors(n_bytes, MARKER),
        build([], [info("w", [N], 43, 0)], bytes(n_bytes)),  # alone, no padding at the end
        build([], [info("w", [N], 43, 0)], bytes(-(-n_bytes // 32) * 32)),
    ):
        with pytest.raises(GGUFError, match=r"tensor 'w': type f8_e4m3 \(id 43\)") as caught:
            GGUFFile(save(tmp_path, content))
        assert origin in str(caught.value)
        assert f"{N} codes" in str(caught.value)


def test_sizes_that_no_layout_explains(tmp_path):
    for content in (two_tensors(2 * N), build([], [info("w", [N], 43, 0)], bytes(2 * N))):
        with pytest.raises(GGUFError, match="no layout that pyggml knows"):
            GGUFFile(save(tmp_path, content))


@pytest.mark.parametrize("size", range(1, 70))
def test_small_tensors_fill_their_padding_or_end_the_file(tmp_path, size):
    padded = -(-size // 32) * 32
    for n_bytes in {size, padded}:
        content = build([], [info("w", [size], 43, 0)], bytes(n_bytes))
        assert GGUFFile(save(tmp_path, content)).tensors["w"].n_bytes == size
    with pytest.raises(GGUFError, match="tensor 'w'"):
        GGUFFile(save(tmp_path, build([], [info("w", [size], 43, 0)], bytes(padded + 1))))
    with pytest.raises(GGUFError, match="tensor 'w'"):
        GGUFFile(save(tmp_path, build([], [info("w", [size], 43, 0)], bytes(size - 1))))


def test_the_next_tensor_is_the_one_with_the_next_offset(tmp_path):
    infos = [info("b", [8], 0, 64), info("w", [33], 43, 0), info("v", [8], 43, 96)]
    file = GGUFFile(save(tmp_path, build([], infos, bytes(104))))
    assert list(file.tensors) == ["b", "w", "v"]


@pytest.mark.parametrize(
    "keys",
    [
        (u32_key("pyggml.fp8.version", 2),),
        (u32_key("pyggml.fp8.version", 0),),
        (string_key("pyggml.fp8.version", "1"),),
        (MARKER[0], string_key("pyggml.fp8.layout", "blocked")),
        (MARKER[0], u32_key("pyggml.fp8.layout", 1)),
    ],
)
def test_a_marker_that_says_otherwise_is_refused(tmp_path, keys):
    with pytest.raises(GGUFError, match=r"key 'pyggml\.fp8\.(version|layout)': must be"):
        GGUFFile(save(tmp_path, two_tensors(N, keys)))
    # without an f8 tensor the marker means nothing
    GGUFFile(save(tmp_path, build(list(keys), [info("t", [8], 0, 0)], bytes(32))))


@pytest.mark.parametrize("kind", [*range(39, 48), 4, 5, 30, 31, 33, 36, 38, 999, 2**31, 2**32 - 1])
def test_only_known_ids_are_taken(tmp_path, kind):
    n_bytes = TENSOR_TYPES[kind].row_bytes(256) if kind in TENSOR_TYPES else 256
    path = save(tmp_path, build([], [info("w", [256], kind, 0)], bytes(n_bytes)))
    if kind in TENSOR_TYPES:
        assert GGUFFile(path).tensors["w"].type.id == kind
        return
    with pytest.raises(GGUFError, match=rf"tensor 'w': has no type .*id {kind}\b") as caught:
        GGUFFile(path)
    assert ("removed" in str(caught.value)) == (kind < 39)


def test_an_fp8_file_of_before_q2_0_took_its_id_is_not_read_as_q2_0(tmp_path):
    # id 42 was FP8 in a fork: N bytes of codes, where q2_0 has 18 bytes per 64 values
    infos = [info("w", [N], 42, 0), info("v", [N], 42, N)]
    path = save(tmp_path, build([], infos, struct.pack("<B", 0x38) * 2 * N))
    assert GGUFFile(path).tensors["w"].n_bytes == N // 64 * 18
    with pytest.raises(GGUFError, match=r"tensor 'v': offset 1024 leaves a gap"):
        GGUFFile(path, strict=True)
