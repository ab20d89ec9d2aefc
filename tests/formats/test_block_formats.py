"""All block formats, core and oracles alike, against the gguf package, and their stated errors."""

from __future__ import annotations

import contextlib

import gguf
import numpy as np
import pytest
from formats.stated import BITS, PAGE, RMS, gaussian, line, measured, table

import pyggml as pg
from oracles import copy as oracle
from pyggml.dtypes import DTYPES

BLOCKS = [d for d in DTYPES if d.is_block]
ENCODED = [d for d in BLOCKS if not d.is_fixed]
every_block = pytest.mark.parametrize("kind", BLOCKS, ids=repr)


# A block and its values, by hand. Each format that the gguf package does not decode needs one: the
# oracle, which agrees with the package elsewhere, is its reference for the rest. The others are
# here so that package, oracle and core are not their only witnesses.
BY_HAND: dict[str, tuple[str, list[float]]] = {
    # d = 0x3800 = 2^(14 - 15) = 0.5, low byte first. Byte i has i in its low half and 15 - i in its
    # high half. w[i] = 0.5 (i - 8), w[i + 16] = 0.5 (15 - i - 8).
    "q4_0": (
        "0038 f0e1d2c3b4a59687 78695a4b3c2d1e0f",
        [
            -4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5,
            3.5, 3, 2.5, 2, 1.5, 1, 0.5, 0, -0.5, -1, -1.5, -2, -2.5, -3, -3.5, -4,
        ],
    ),
    # d = 0xb400 = -2^(13 - 15) = -0.25. Codes 0 1 2 3, 127 -127 -126 -1, 64 -64 16 -16, then 4 to
    # 23: each times -0.25.
    "q8_0": (
        "00b4 00010203 7f8182ff 40c010f0 0405060708090a0b 0c0d0e0f10111213 14151617",
        [
            0, -0.25, -0.5, -0.75, -31.75, 31.75, 31.5, 0.25, -16, 16, -4, 4,
            -1, -1.25, -1.5, -1.75, -2, -2.25, -2.5, -2.75, -3, -3.25, -3.5, -3.75,
            -4, -4.25, -4.5, -4.75, -5, -5.25, -5.5, -5.75,
        ],
    ),
    # e = 0x82: 2^(130 - 127) = 8. Codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6 (two bits of
    # exponent, one of mantissa), 8 to 15 the same below zero; times 8. Halves as in q4_0.
    "mxfp4": (
        "82 f0e1d2c3b4a59687 78695a4b3c2d1e0f",
        [
            0, 4, 8, 12, 16, 24, 32, 48, 0, -4, -8, -12, -16, -24, -32, -48,
            -48, -32, -24, -16, -12, -8, -4, 0, 48, 32, 24, 16, 12, 8, 4, 0,
        ],
    ),
}  # fmt: skip


def theirs(kind: pg.DType) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType(kind.gguf_id)


def is_known(kind: pg.DType) -> bool:
    """True for what the gguf package decodes."""
    try:
        gguf.quants.dequantize(np.zeros((1, kind.itemsize), np.uint8), theirs(kind))
    except (RuntimeError, ValueError):  # it has the id but no decoder, or no such id
        return False
    return True


def reference(kind: pg.DType, raw: np.ndarray) -> np.ndarray:
    """Values of raw rows, by the gguf package where it can."""
    with np.errstate(all="ignore"):
        if is_known(kind):
            return gguf.quants.dequantize(raw, theirs(kind))
        return oracle.decode(raw, kind.name).astype(np.float32)


def core_decode(kind: pg.DType, raw: np.ndarray) -> np.ndarray:
    """What pyggml makes of raw rows (rows, bytes)."""
    n = raw.shape[1] // kind.itemsize * kind.block
    return pg.Tensor.from_raw(raw, (len(raw), n), kind).dequantize()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit; NaN as NaN, whose payloads no format defines."""
    nan = np.isnan(b)
    return np.array_equal(np.isnan(a), nan) and np.array_equal(
        a[~nan].astype(np.float32).view(np.uint32), b[~nan].view(np.uint32)
    )


@every_block
def test_ids_and_sizes(kind) -> None:
    if is_known(kind):
        assert gguf.GGML_QUANT_SIZES[theirs(kind)] == (kind.block, kind.itemsize)
        assert theirs(kind).name.lower() == kind.name
        return
    why = f"the gguf package does not decode {kind.name}: state a block of it in BY_HAND"
    assert kind.name in BY_HAND, why


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name) -> None:
    text, values = BY_HAND[name]
    raw = np.frombuffer(bytes.fromhex(text), np.uint8)[None]
    kind = pg.dtype(name)
    assert core_decode(kind, raw).tolist() == [values]
    assert oracle.decode(raw, name).tolist() == [values]
    if is_known(kind):
        assert reference(kind, raw).tolist() == [values]


@every_block
@pytest.mark.parametrize("seed", range(3))
def test_decode_of_random_bytes(kind, seed) -> None:
    # scales of every kind among them: denormal, infinite, NaN, of either sign
    raw = np.random.default_rng(seed).integers(0, 256, (500, 4 * kind.itemsize), dtype=np.uint8)
    expected = reference(kind, raw)
    assert same(core_decode(kind, raw), expected)
    assert same(oracle.decode(raw, kind.name), expected)


@every_block
def test_decode_of_each_byte_value(kind) -> None:
    # one byte of a typical block at a time takes all its values
    block = oracle.encode(gaussian(1, kind.block), kind.name)[0]
    raw = np.repeat(block[None], kind.itemsize * 256, axis=0)
    at = np.arange(len(raw))
    raw[at, at // 256] = at % 256
    expected = reference(kind, raw)
    assert same(core_decode(kind, raw), expected)


@pytest.mark.parametrize("kind", ENCODED, ids=repr)
def test_encode_equals_the_package_where_it_encodes(kind) -> None:
    x = gaussian(400, 256) * 10.0 ** np.random.default_rng(1).integers(-4, 5, (400, 1))
    x = x.astype(np.float32)
    x[0], x[1], x[2], x[3, ::32] = 0, -2.5, 1, 100
    raw = pg.tensor(x, dtype=kind).raw().reshape(400, -1)
    assert np.array_equal(raw, oracle.encode(x, kind.name))
    with contextlib.suppress(RuntimeError, ValueError):  # it only decodes some; no such id
        assert np.array_equal(raw, gguf.quants.quantize(x, theirs(kind)))


@pytest.mark.parametrize("kind", ENCODED, ids=repr)
def test_the_package_reads_what_we_write(kind) -> None:
    x = gaussian(50, 512)
    t = pg.tensor(x, dtype=kind)
    back = reference(kind, t.raw().reshape(50, -1))
    assert np.array_equal(back, t.dequantize())
    assert np.sqrt(np.mean((back.astype(np.float64) - x) ** 2)) < 1.05 * RMS[kind.name]


@pytest.mark.parametrize("kind", ENCODED, ids=repr)
def test_no_element_is_further_than_a_step(kind) -> None:
    # half the largest distance between neighbouring codes of a block in -1 .. 1, and what scales
    # that are rounded add
    x = np.random.default_rng(6).uniform(-1, 1, (200, 512)).astype(np.float32)
    worst = np.abs(pg.tensor(x, dtype=kind).dequantize() - x).max()
    codes = 2.0 ** np.floor(8 * kind.itemsize / kind.block)
    assert worst < {"q8_0": 0.005, "mxfp4": 0.26}.get(kind.name, 2.6 / codes)


@pytest.mark.parametrize("kind", ENCODED, ids=repr)
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_marks_its_block(kind, value) -> None:
    x = gaussian(3, 2 * kind.block)
    x[1, kind.block + 5] = value
    back = pg.tensor(x, dtype=kind).dequantize()
    marked = ~np.isfinite(back)
    assert marked[1, kind.block :].all()
    assert marked.sum() == kind.block


@pytest.mark.parametrize("kind", ENCODED, ids=repr)
def test_zeros_and_extremes(kind) -> None:
    for zero in (0.0, -0.0):
        assert not pg.tensor(np.full((1, 256), zero, "f4"), dtype=kind).dequantize().any()
    tiny = np.full((1, 256), 1e-45, np.float32)
    assert np.abs(pg.tensor(tiny, dtype=kind).dequantize()).max() <= 1e-38
    # too large for the halves: infinity or NaN in reading, never a wrong finite value
    huge = gaussian(1, 256) * np.float32(1e38)
    back = pg.tensor(huge, dtype=kind).dequantize()
    if kind.name == "mxfp4":  # its exponent reaches that far
        assert np.abs(back - huge).max() <= np.abs(huge).max() * 0.25
    else:
        assert not np.isfinite(back).any()


def test_mxfp4_beside_powers_of_two() -> None:
    # the exponent is that of the largest value, also where log2 in floats rounds up
    below = np.nextafter(np.float32(8), np.float32(0))
    for largest, e in ((8.0, 128), (below, 127), (4.0, 127), (0.5, 124)):
        x = np.zeros((1, 32), np.float32)
        x[0, 3] = -largest
        raw = pg.tensor(x, dtype="mxfp4").raw()
        assert raw[0] == e
        assert raw[4] & 15 == (8 | 6 if largest != below else 8 | 7)


def test_every_float_states_its_error() -> None:
    for d in DTYPES:
        assert not d.is_float or d.name in RMS, f"pyggml/dtypes.py lacks the line\n{line(d.name)}"
    assert set(RMS) == {d.name for d in DTYPES if d.is_float}
    assert {d.name: 8 * d.itemsize / d.block for d in DTYPES if d.is_float} == BITS


@pytest.mark.parametrize("name", RMS)
def test_stated_error(name) -> None:
    assert measured(name) == pytest.approx(RMS[name], rel=0.02)


def test_documented_table() -> None:
    stale = "docs/dtypes.md is stale; run PYTHONPATH=.:tests python -m formats.stated"
    assert "\n".join(table()) + "\n\n" in PAGE.read_text(), stale
