"""Elementwise kernels, the rotation and the check for finite values."""

import numpy as np
import pytest
from kernels.kernel import ISAS, guarded, kernel, moved, same_bits

ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
SLOTS = {*ARITHMETIC, "scale", "decay_add", "rope_norm", "rope_neox", "all_finite"}

LENGTHS = (*range(36), 64, 77)
every_isa = pytest.mark.parametrize("isa", ISAS)


def numbers(n, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 2, n)).astype(np.float32)


def run_unary(call, x):
    """call(n, x, y) at a guard page, misaligned between sentinels, and in place: one result."""
    n = len(x)
    y = guarded(1).at_end(np.zeros(n, np.float32))
    call(n, guarded(0).at_end(x), y)
    room = np.full(n + 16, 9, np.float32)
    call(n, moved(x, 4, poison=0xFF), room[3:])
    assert same_bits(room[3 : n + 3], y)
    assert (room[:3] == 9).all()
    assert (room[n + 3 :] == 9).all()
    place = x.copy()
    call(n, place, place)
    assert same_bits(place, y)
    return y.copy()


def run_binary(call, a, b):
    """The same for two operands, in place of each of them."""
    n = len(a)
    y = guarded(2).at_end(np.zeros(n, np.float32))
    call(n, guarded(0).at_end(a), guarded(1).at_end(b), y)
    room = np.full(n + 16, 9, np.float32)
    call(n, moved(a, 4, poison=0xFF), moved(b, 12, poison=0xFF), room[3:])
    assert same_bits(room[3 : n + 3], y)
    assert (room[:3] == 9).all()
    assert (room[n + 3 :] == 9).all()
    place = a.copy()
    call(n, place, b, place)
    assert same_bits(place, y)
    place = b.copy()
    call(n, a, place, place)
    assert same_bits(place, y)
    return y.copy()


@every_isa
@pytest.mark.parametrize("slot", ARITHMETIC)
def test_arithmetic(isa, slot):
    for n in LENGTHS:
        a, b = numbers(n, 1), numbers(n, 2)
        assert same_bits(run_binary(kernel(isa, slot), a, b), ARITHMETIC[slot](a, b))
    edge = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -3e38, 3e38, 1.0], np.float32)
    a, b = (part.reshape(-1) for part in np.meshgrid(edge, edge))
    y = np.zeros_like(a)
    kernel(isa, slot)(len(a), a, b, y)
    with np.errstate(all="ignore"):
        expected = ARITHMETIC[slot](a, b)
    assert np.array_equal(y, expected, equal_nan=True)
    zero = y == 0
    assert np.array_equal(np.signbit(y[zero]), np.signbit(expected[zero]))


@every_isa
def test_scale(isa):
    for n in LENGTHS:
        x = numbers(n)
        y = run_unary(lambda n, x, y: kernel(isa, "scale")(n, x, 1.7, -0.3, y), x)
        s, bias = np.float64(np.float32(1.7)), np.float64(np.float32(-0.3))
        exact = s * x + bias
        assert (np.abs(y - exact) <= 2.0**-23 * (np.abs(s * x) + np.abs(bias))).all()


@every_isa
def test_decay_add(isa):
    for n in LENGTHS:
        x, r = numbers(n, 1), np.float32(1.7)
        y = np.random.default_rng(n).standard_normal(n)
        room = np.concatenate([y, np.full(9, 4.0)])
        kernel(isa, "decay_add")(n, r, guarded(0).at_end(x), room)
        assert np.array_equal(room[:n], y * np.float64(r) + x.astype(np.float64))
        assert (room[n:] == 4).all()


def assert_close(y, exact, ulps):
    """Relative to the result; results below the smallest normal may lose bits."""
    limit = ulps * 2.0**-23 * np.abs(exact) + 2.0**-140
    assert (np.abs(y - exact) <= limit).all()


def rotated(x, cos, sin, neox):
    a, b = (x[: len(cos)], x[len(cos) :]) if neox else (x[0::2], x[1::2])
    y = np.empty_like(x)
    first, second = (
        (slice(0, len(cos)), slice(len(cos), None)) if neox else (slice(0, None, 2),) * 2
    )
    if not neox:
        second = slice(1, None, 2)
    y[first], y[second] = a * cos - b * sin, a * sin + b * cos
    return y


@every_isa
@pytest.mark.parametrize("slot", ["rope_norm", "rope_neox"])
def test_rope(isa, slot):
    for pairs in LENGTHS:
        x = numbers(2 * pairs)
        angle = np.random.default_rng(pairs).uniform(-10, 10, pairs)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        c, s = guarded(2).at_end(cos), guarded(3).at_end(sin)
        y = run_unary(lambda _, x, y: kernel(isa, slot)(len(c), x, c, s, y), x)  # noqa: B023
        # products and sums are rounded one by one, as numpy's are
        assert same_bits(y, rotated(x, cos, sin, slot == "rope_neox")), pairs


@every_isa
def test_all_finite(isa):
    finite = kernel(isa, "all_finite")
    for n in LENGTHS:
        x = numbers(n)
        x[: n // 2] = np.float32(3.4e38)
        at_end = guarded(0).at_end(x)
        assert finite(n, at_end) == 1
        assert finite(n, moved(x, 4, poison=0xFF)) == 1
        for i in range(n):
            for value in (np.nan, np.inf, -np.inf):
                bad = x.copy()
                bad[i] = value
                assert finite(n, bad) == 0
    signalling = np.array([1, 2, 0x7F800001], np.uint32).view(np.float32)
    assert finite(3, signalling) == 0
