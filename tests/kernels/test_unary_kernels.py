"""Kernels of one operand and gated units: error classes over the whole range of floats."""

import numpy as np
import pytest
from kernels.kernel import GATED, ISAS, UNARY_SLOTS, kernel, same_bits
from kernels.test_vec import LENGTHS, every_isa, numbers, run_binary, run_unary

from oracles import elementwise
from oracles import unary as oracle

SLOTS = {*UNARY_SLOTS, *GATED, "clamp", "leaky_relu"}

# Units of 2^-23 of the result, as kernels.h states them; gelu and its like: see `units`. Half a
# unit is one rounding, the same bits in every instruction set.
UNITS = {"exp": 2, "log": 2, "tanh": 2, "softplus": 2, "sin": 2, "cos": 2, "sigmoid": 3, "silu": 3}
UNITS |= {"gelu_erf": 5, "sqr": 0.5, "sqrt": 0.5, "neg": 0, "abs": 0, "relu": 0, "step": 0}
EXACT = tuple(slot for slot, most in UNITS.items() if most <= 0.5)
EDGES = [0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 1e-38, -1e-38, 1.2e-38]
EDGES += [
    3.4e38,
    -3.4e38,
    88.72,
    88.73,
    -103.97,
    -103.98,
    1,
    -1,
    0.625,
    0.62499994,
    2**20,
    -(2**20),
]
EDGES += [1048576.1, 1e22, -3e38, np.pi, np.pi / 2, 15, -14.5, 0.70710677, 1.4142135, 5e-39]


def sweep(slot):
    """Every exponent at random, the range where things happen, and points that are hard."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, 60_000, np.uint64).astype(np.uint32).view(np.float32)
    parts = [bits, np.array(EDGES, "f4"), np.linspace(-20, 20, 30_001, dtype="f4")]
    parts += [np.linspace(-120, 120, 10_001, dtype="f4"), rng.uniform(0.7, 1.5, 10_000)]
    if slot in ("sin", "cos"):
        parts += [np.arange(-20_000, 50_000) * (np.pi / 2), rng.uniform(-1.1e6, 1.1e6, 30_000)]
    return np.concatenate([np.asarray(p, "f4") for p in parts])


def units(slot, x):
    """The bound of a slot at x, in units of 2^-23 of the result."""
    with np.errstate(all="ignore"):
        if slot == "gelu":
            z = 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
            return 4 + 2 * np.where(x < 0, np.minimum(np.abs(z), 200), 0)
        if slot == "gelu_quick":
            return 4 + np.where(x < 0, np.minimum(np.abs(1.702 * x), 200), 0)
        assert slot in UNITS, f"state the error class of {slot} in UNITS and in kernels.h"
        return UNITS[slot]


def tiny(slot, x):
    """What a denormal result may be off by: its last place, more where a factor is denormal."""
    if slot in ("silu", "gelu", "gelu_quick"):
        return 2.0**-149 * np.clip(np.abs(x), 1, 128)
    return 2.0**-149


def assert_within(y, exact, limit):
    """Finite where the float32 of `exact` is, and then within the limit; else the same."""
    with np.errstate(over="ignore", invalid="ignore"):
        expected = exact.astype(np.float32)
        finite = np.isfinite(expected)
        assert np.array_equal(y[~finite], expected[~finite], equal_nan=True)
        assert np.isfinite(y[finite]).all()
        over = np.abs(y - exact)[finite] - np.broadcast_to(limit, y.shape)[finite]
    assert (over <= 0).all()


@every_isa
@pytest.mark.parametrize("slot", UNARY_SLOTS)
def test_error_over_all_floats(isa, slot):
    x = sweep(slot)
    y = np.zeros_like(x)
    kernel(isa, slot)(len(x), x, y)
    with np.errstate(invalid="ignore"):  # signalling NaNs are among them
        wide = x.astype(np.float64)
    exact = getattr(oracle, slot)(wide)
    with np.errstate(all="ignore"):
        limit = units(slot, wide) * 2.0**-23 * np.abs(exact)
        assert_within(y, exact, limit + (tiny(slot, wide) if slot not in EXACT else 2.0**-150))


@every_isa
@pytest.mark.parametrize("slot", UNARY_SLOTS)
def test_lengths_places_and_bits_by_position(isa, slot):
    """A value gives the same bits wherever it stands, at every length, and in place."""
    x = numbers(LENGTHS[-1], 3)
    x[::7] *= -1
    x[5::13] *= 1e7
    whole = run_unary(kernel(isa, slot), x)
    for n in LENGTHS:
        assert same_bits(run_unary(kernel(isa, slot), x[-n or len(x) :]), whole[-n or len(x) :])


@pytest.mark.parametrize("slot", EXACT)
def test_exact_slots_agree_bit_for_bit(slot):
    x = sweep(slot)
    x = x[~np.isnan(x)]
    results = []
    for isa in ISAS:
        y = np.zeros_like(x)
        kernel(isa, slot)(len(x), x, y)
        results.append(np.where(np.isnan(y), np.float32(np.nan), y))
    assert all(same_bits(results[0], y) for y in results[1:])


@every_isa
def test_signs_of_zero(isa):
    x = np.array([0.0, -0.0] * 9, np.float32)
    signs = {"neg": [False, True], "abs": [False, False], "sqr": [False, False]}
    signs |= {slot: [False, True] for slot in ("sqrt", "relu", "sin", "tanh", "silu", "gelu")}
    signs |= {slot: [False, True] for slot in ("gelu_erf", "gelu_quick")}
    signs["neg"] = [True, False]
    for slot, expected in signs.items():
        y = np.ones_like(x)
        kernel(isa, slot)(len(x), x, y)
        assert (y == 0).all()
        assert list(np.signbit(y)) == expected * 9, slot


@every_isa
def test_sin_keeps_tiny_arguments(isa):
    x = np.array([1e-45, -1e-45, 1e-30, -1.2e-38, 3e-20], np.float32)
    for slot in ("sin", "tanh"):
        y = np.zeros_like(x)
        kernel(isa, slot)(len(x), x, y)
        assert same_bits(x, y)


@every_isa
@pytest.mark.parametrize(("low", "high"), [(-0.5, 2.0), (1.0, 1.0), (-np.inf, 3.0), (0.0, np.inf)])
def test_clamp(isa, low, high):
    call = kernel(isa, "clamp")
    for n in LENGTHS:
        x = numbers(n)
        y = run_unary(lambda n, x, y: call(n, x, low, high, y), x)
        assert same_bits(y, np.clip(x, np.float32(low), np.float32(high)))
    x = np.array(EDGES, np.float32)
    y = np.zeros_like(x)
    call(len(x), x, low, high, y)
    assert np.array_equal(y, np.clip(x, np.float32(low), np.float32(high)), equal_nan=True)


@every_isa
def test_leaky_relu(isa):
    call = kernel(isa, "leaky_relu")
    slope = np.float32(0.3)
    for n in LENGTHS:
        x = numbers(n)
        y = run_unary(lambda n, x, y: call(n, x, slope, y), x)
        assert same_bits(y, np.where(x < 0, slope * x, x))
    x = np.array(EDGES, np.float32)
    y = np.zeros_like(x)
    call(len(x), x, slope, y)
    with np.errstate(all="ignore"):
        assert np.array_equal(y, np.where(x < 0, slope * x, x), equal_nan=True)


@every_isa
@pytest.mark.parametrize("slot", GATED)
def test_gated(isa, slot):
    activation = {"swiglu": "silu", "reglu": "relu"}.get(slot, slot.replace("geglu", "gelu"))
    for n in LENGTHS:
        gate, up = numbers(n, 1), numbers(n, 2)
        y = run_binary(kernel(isa, slot), gate, up)
        exact = getattr(elementwise, slot)(gate, up)
        loose = 2.0**-149 * 128 * (1 + np.abs(up.astype(np.float64)))
        wide = gate.astype(np.float64)
        limit = (units(activation, wide) + 1) * 2.0**-23 * np.abs(exact) + loose
        assert_within(y, exact, limit)
        # exactly the activation, times up
        a = np.zeros_like(gate)
        kernel(isa, activation)(n, gate, a)
        assert same_bits(y, a * up)
