"""sum, sum_sqr, scale_wide, argmax, norm and the Walsh-Hadamard transform."""

import math

import numpy as np
import pytest
from kernels.kernel import ISAS, guarded, kernel, moved, same_bits
from kernels.test_vec import LENGTHS, assert_close, numbers, run_unary

SLOTS = {"sum", "sum_sqr", "scale_wide", "argmax", "norm", "fwht"}

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
def test_sum_sqr(isa):
    call = kernel(isa, "sum_sqr")
    for n in (*LENGTHS, 2048):
        x = numbers(n)
        exact = math.fsum(x.astype(np.float64) ** 2)
        total = call(n, guarded(0).at_end(x))
        assert abs(total - exact) <= n * 2.0**-53 * exact
        assert call(n, moved(x, 4, poison=0xFF)) == total
    for size in (1e-45, 1e-30, 3e38):
        x = np.full(9, size, np.float32)
        assert call(9, x) == pytest.approx(9 * float(x[0]) ** 2, rel=1e-15)
    for n in (1, 9, 33):
        for i in range(n):
            x = np.ones(n, np.float32)
            x[i] = -np.inf
            assert call(n, x) == np.inf
            x[i] = np.nan
            assert np.isnan(call(n, x))


@every_isa
def test_scale_wide(isa):
    call = kernel(isa, "scale_wide")
    for n in LENGTHS:
        x = numbers(n)
        y = run_unary(lambda n, x, y: call(n, x, 1 / 3, y), x)
        assert_close(y, x.astype(np.float64) / 3, 2)
    for power in (*range(-160, 161, 8), -101, -100, 100, 101):
        s = 1.2345678 * 2.0**power
        size = 2.0 ** np.clip(-power, -125, 126)  # the product is near 1 where F32 allows it
        for x in (numbers(33) * np.float32(size / 512), np.float32([1e-45, -1e-40, 1e38, 0])):
            y = np.zeros(len(x), np.float32)
            call(len(x), x, s, y)
            exact = x.astype(np.float64) * s
            fits = np.abs(exact) < 3.4e38
            assert_close(y[fits], exact[fits], 2)
            assert (y[~fits] == np.copysign(np.inf, exact[~fits])).all()
    edge = np.float32([0, 1, -2, np.inf, np.nan])
    for s in (0.0, np.inf, np.nan):
        y = np.zeros(5, np.float32)
        call(5, edge, s, y)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(y, edge * np.float32(s))


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
