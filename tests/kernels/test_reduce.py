"""sum, argmax, norm, l2_norm and the Walsh-Hadamard transform."""

import math

import numpy as np
import pytest
from kernels.kernel import ISAS, guarded, kernel, moved, same_bits
from kernels.test_vec import LENGTHS, assert_close, numbers, run_unary

SLOTS = {"sum", "argmax", "norm", "l2_norm", "fwht"}

every_isa = pytest.mark.parametrize("isa", ISAS)


@every_isa
def test_sum(isa):
    call = kernel(isa, "sum")
    for n in (*LENGTHS, 2048):
        x = numbers(n)
        exact = math.fsum(x.astype(np.float64))
        total = call(n, guarded(0).at_end(x))
        assert abs(total - exact) <= n * 2.0**-53 * np.abs(x.astype(np.float64)).sum()
        assert call(n, moved(x, 4, poison=0xFF)) == total
    assert call(4, np.float32([3e38, 3e38, -3e38, 1e-30])) == pytest.approx(3e38)
    for n in (1, 9, 33):
        for i in range(n):
            x = np.ones(n, np.float32)
            x[i] = np.inf
            assert call(n, x) == np.inf
            x[i] = np.nan
            assert np.isnan(call(n, x))


@every_isa
def test_argmax(isa):
    call = kernel(isa, "argmax")
    assert call(0, np.zeros(1, np.float32)) == -1
    for n in LENGTHS[1:]:
        x = np.round(numbers(n))
        assert call(n, guarded(0).at_end(x)) == x.argmax()
        assert call(n, moved(x, 4, poison=0xFF)) == x.argmax()
        for i in range(n):
            x = np.full(n, -np.inf, np.float32)
            assert call(n, x) == 0
            x[i:] = 5
            assert call(n, x) == i
            x[i:] = np.nan
            x[0] = np.inf
            assert call(n, x) == x.argmax()


def norm64(x, eps):
    x = x.astype(np.float64)
    return (x - x.mean()) / np.sqrt(x.var() + eps)


@every_isa
def test_norm(isa):
    call = kernel(isa, "norm")
    eps = np.float64(np.float32(1e-5))
    for n in LENGTHS:
        x = numbers(n)
        y = run_unary(lambda n, x, y: call(n, x, 1e-5, y), x)
        if n:
            assert np.allclose(y, norm64(x, eps), rtol=1e-6, atol=3e-7)
            far = (1e4 + np.random.default_rng(n).standard_normal(n)).astype(np.float32)
            call(n, far, 1e-5, far_y := np.zeros(n, np.float32))
            assert np.allclose(far_y, norm64(far, eps), rtol=1e-6, atol=3e-7)
    for scale in (1e-30, 1e30, 1.5e38):
        x = np.float32([1, -1, 0.5, 0.25]) * np.float32(scale)
        call(4, x, 0.0, y := np.zeros(4, np.float32))
        assert_close(y, norm64(x, 0), 4)
    call(9, np.full(9, 7, np.float32), 1e-5, y := np.ones(9, np.float32))
    assert (y == 0).all()


@every_isa
def test_l2_norm(isa):
    call = kernel(isa, "l2_norm")
    for n in LENGTHS:
        x = numbers(n)
        y = run_unary(lambda n, x, y: call(n, x, 1e-5, y), x)
        exact = x / max(np.linalg.norm(x.astype(np.float64)), 1e-5)
        assert_close(y, exact, 4)
    for scale in (1e-45, 1e-40, 1e-30, 1e30, 3e38):
        x = np.full(9, scale, np.float32)
        call(9, x, 0.0, y := np.zeros(9, np.float32))
        assert_close(y, np.full(9, 1 / 3), 4)
    x = np.float32([3e-6, 4e-6])
    call(2, x, 1.0, y := np.zeros(2, np.float32))
    assert_close(y, x.astype(np.float64), 2)
    for bad in (np.nan, np.inf):
        call(3, np.float32([1, bad, 2]), 1.0, y := np.zeros(3, np.float32))
        assert np.isnan(y[1])
        assert np.isnan(y[0]) == np.isnan(bad)


def rounds(x, scale):
    """The transform round by round, in F32."""
    y = x * np.float32(scale)
    h = 1
    while h < len(y):
        pairs = y.reshape(-1, 2, h)
        y = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(-1)
        h *= 2
    return y


@every_isa
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_fwht(isa, scale):
    for power in range(13):
        x = numbers(2**power)
        y = run_unary(lambda n, x, y: kernel(isa, "fwht")(n, x, scale, y), x)
        assert same_bits(y, rounds(x, scale)), power
    x = np.zeros(64, np.float32)
    x[5] = 1
    kernel(isa, "fwht")(64, x, 1.0, y := np.zeros(64, np.float32))
    assert y.tolist() == [(-1) ** (i & 5).bit_count() for i in range(64)]
