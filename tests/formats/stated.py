"""What the documentation states about the error of each dtype, and the data it speaks of."""

from __future__ import annotations

import re

import numpy as np

from pyggml import dtypes

_ROW = re.compile(r"^    (\w+) +([\d.]+) +([\d.]+)(?: +decoded only)?$", re.MULTILINE)

BITS = {name: float(bits) for name, bits, _ in _ROW.findall(dtypes.__doc__)}
RMS = {name: float(rms) for name, _, rms in _ROW.findall(dtypes.__doc__)}


def gaussian(*shape: int) -> np.ndarray:
    """Standard normal values."""
    return np.random.default_rng(20).standard_normal(shape).astype(np.float32)
