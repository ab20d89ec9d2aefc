"""Direct kernels: on codes, the bits of decoding, the slot they stand for, and encoding; sums
within a bound."""

import math

import numpy as np
import pytest
from kernels.kernel import (
    DIRECT,
    DTYPES,
    ISAS,
    SIGNATURES,
    decoded,
    encoded,
    guarded,
    kernel,
    moved,
    same_bits,
    words,
)

SLOTS = set(DIRECT)
SUMS = [direct for direct in DIRECT if SIGNATURES[direct][0] is not None]
FACTORS = {"scale": (0.75, -0.125), "sum_sqr": ()}  # what a slot of one operand takes besides
SUM_BOUND = 2.0**-23  # of a sum of F16, relative

every_isa = pytest.mark.parametrize("isa", ISAS)
every_row = pytest.mark.parametrize("direct", DIRECT)
every_sum = pytest.mark.parametrize("direct", SUMS)


def codes_of(dtype, seed):
    """Every code once, in some order."""
    size = 8 * DTYPES[dtype][1]
    return np.random.default_rng(seed).permutation(1 << size).astype(words(dtype))


def operands(slot, dtype, n=None):
    """Codes for a slot; finite ones where it adds them all up."""
    operands = [codes_of(dtype, seed) for seed in range(1 if slot in FACTORS else 2)]
    if SIGNATURES[slot][0] is not None:
        operands = [codes[np.isfinite(decoded(dtype, codes))] for codes in operands]
    return [codes[:n].copy() for codes in operands]


def by_way_of_f32(isa, slot, dtype, inputs):
    n = len(inputs[0])
    wide = [np.zeros(n, np.float32) for _ in inputs]
    for codes, x in zip(inputs, wide, strict=True):
        kernel(isa, f"to_f32_{dtype}")(codes, x, n)
    if SIGNATURES[slot][0] is not None:
        return np.array(kernel(isa, slot)(n, *wide))
    y, out = np.zeros(n, np.float32), np.zeros_like(inputs[0])
    kernel(isa, slot)(n, *wide, *FACTORS.get(slot, ()), y)
    kernel(isa, f"from_f32_{dtype}")(y, out, n)
    return out


def as_expected(isa, slot, dtype, inputs, y):
    """Bit for bit, but for NaN of two NaN: C lets the compiler choose whose payload remains."""
    expected = by_way_of_f32(isa, slot, dtype, inputs)
    if y.shape != expected.shape or y.dtype != expected.dtype:
        return False
    if y.ndim == 0:
        return abs(y - expected) <= SUM_BOUND * expected
    if len(inputs) == 1:
        return same_bits(y, expected)
    both_nan = np.logical_and(*(np.isnan(decoded(dtype, codes)) for codes in inputs))
    other = by_way_of_f32(isa, slot, dtype, inputs[::-1])
    return ((y == expected) | both_nan & (y == other)).all()


def call(isa, slot, direct, inputs, y):
    """What the kernel returns, or what it wrote to y."""
    if SIGNATURES[direct][0] is not None:
        return np.array(kernel(isa, direct)(len(y), *inputs))
    kernel(isa, direct)(len(y), *inputs, *FACTORS.get(slot, ()), y)
    return y


def test_the_table_names_what_it_says():
    assert DIRECT
    assert all(direct == f"{slot}_{dtype}" for direct, (slot, dtype) in DIRECT.items())


@every_isa
@every_row
def test_every_code(isa, direct):
    slot, dtype = DIRECT[direct]
    inputs = operands(slot, dtype)
    y = call(isa, slot, direct, inputs, np.zeros_like(inputs[0]))
    assert as_expected(isa, slot, dtype, inputs, y)


@every_isa
@every_row
def test_lengths_and_guards(isa, direct):
    """At guard pages, unaligned, and in place of each operand."""
    slot, dtype = DIRECT[direct]
    for n in (*range(36), 64, 77):
        inputs = operands(slot, dtype, n)
        at_guards = [guarded(i).at_end(codes) for i, codes in enumerate(inputs)]
        y = guarded(2).at_end(np.zeros_like(inputs[0]))
        assert as_expected(isa, slot, dtype, inputs, call(isa, slot, direct, at_guards, y))
        size = inputs[0].itemsize
        room = np.full(size * (n + 16) + 1, 9, np.uint8)
        y = room[1 + 3 * size : 1 + (n + 3) * size].view(inputs[0].dtype)
        assert as_expected(isa, slot, dtype, inputs, call(isa, slot, direct, inputs, y))
        assert (room[: 1 + 3 * size] == 9).all()
        assert (room[1 + (n + 3) * size :] == 9).all()
        for i in range(len(inputs)):
            places = [codes.copy() for codes in inputs]
            y = call(isa, slot, direct, places, places[i])
            assert as_expected(isa, slot, dtype, inputs, y)


@every_isa
@every_sum
def test_sums_against_float64(isa, direct):
    """Within the bound at every length, at the ends of the range too; the same bits anywhere."""
    slot, dtype = DIRECT[direct]
    n = 300
    ends = np.array([encoded(dtype, np.float32([x]))[0] for x in (65504, 2.0**-24)])
    inputs = [operands(slot, dtype, n)[0], *ends.repeat(n).reshape(2, n)]
    inputs.append(ends[np.arange(n) % 3 % 2])
    for codes in inputs:
        squares = decoded(dtype, codes) ** 2
        for length in (*range(140), n):
            total = kernel(isa, direct)(length, guarded(0).at_end(codes[:length]))
            exact = math.fsum(squares[:length])
            assert abs(total - exact) <= SUM_BOUND * exact
            assert kernel(isa, direct)(length, moved(codes[:length], 2, poison=0xFF)) == total


@every_isa
@every_sum
def test_sums_of_what_is_not_finite(isa, direct):
    slot, dtype = DIRECT[direct]
    for n in (1, 9, 33):
        for i in range(n):
            for value in (np.inf, np.nan):
                x = np.ones(n, np.float32)
                x[i] = value
                codes = encoded(dtype, x)
                np.testing.assert_equal(kernel(isa, direct)(n, codes), kernel(isa, slot)(n, x))
