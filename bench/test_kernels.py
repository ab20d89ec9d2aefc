"""Every kernel slot in every instruction set, operands in L1 or L2: GB/s, GFLOP/s.

python -m pytest bench/test_kernels.py --benchmark-columns=median,iqr -k "mv and avx2"
"""

import numpy as np
import pytest
from kernels.cases import typical
from kernels.kernel import ISAS, kernel

from pyggml import _core

CALLS = 200  # a round: long against the ctypes call around it


def repeat(function, args, calls):
    for _ in range(calls):
        function(*args)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("slot", _core.kernel_slots())
def test_kernel(benchmark, isa, slot):
    case = typical(slot)
    expected = typical(slot).run("generic", slot)
    result = case.run(isa, slot)
    assert np.allclose(result, expected, rtol=2e-5, atol=2e-5)
    args = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in case.args]
    benchmark.pedantic(repeat, (kernel(isa, slot), args, CALLS), rounds=5, warmup_rounds=1)
    seconds = benchmark.stats.stats.median / CALLS
    benchmark.extra_info["GB/s"] = round(case.n_bytes / seconds * 1e-9, 2)
    benchmark.extra_info["GFLOP/s"] = round(case.flops / seconds * 1e-9, 2)
