"""Every slot of the kernel table has a test, and every instruction set code of its own."""

from itertools import pairwise

import numpy as np
import pytest
from kernels import (
    test_attn_kernels,
    test_convert,
    test_direct,
    test_dot,
    test_gemm,
    test_reduce,
    test_unary_kernels,
    test_vec,
)
from kernels.cases import typical
from kernels.kernel import ISAS, SIGNATURES

from pyggml import _core

MODULES = (
    test_attn_kernels,
    test_convert,
    test_direct,
    test_dot,
    test_gemm,
    test_reduce,
    test_unary_kernels,
    test_vec,
)


def test_every_slot_is_tested():
    tested = set().union(*(module.SLOTS for module in MODULES))
    assert tested == set(_core.kernel_slots()) == set(SIGNATURES)


def test_generic_comes_first():
    assert ISAS[0] == "generic"
    assert len(set(ISAS)) == len(ISAS)


@pytest.mark.parametrize("slot", _core.kernel_slots())
def test_the_best_set_leaves_nothing_generic(slot):
    addresses = [_core.kernel_address(isa, slot) for isa in ISAS]
    assert all(addresses)
    assert len(ISAS) == 1 or addresses[-1] != addresses[0]


def test_every_set_improves_on_those_before():
    """A set may fill a few slots only; the others are as in the set before."""
    tables = [[_core.kernel_address(isa, s) for s in _core.kernel_slots()] for isa in ISAS]
    for table, better in pairwise(tables):
        assert table != better


@pytest.mark.parametrize("slot", _core.kernel_slots())
def test_sets_agree_on_typical_operands(slot):
    results = [typical(slot).run(isa, slot) for isa in ISAS]
    assert np.isfinite(results[0]).all()
    assert np.abs(results[0]).max() > 0
    for result in results[1:]:
        assert np.allclose(result, results[0], rtol=2e-5, atol=2e-5)
