"""Importing pyggml leaves the process as it was."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import warnings
import numpy as np

warnings.simplefilter("error")
tiny = np.float32(1e-45)
import pyggml as pg

g = pg.Graph()
x = g.input("x", (64, 64))
out = g.compile(pg.ops.mul_mat(x, x) + 1.0, threads=2)(x=np.ones((64, 64), np.float32))
assert (out == 65).all()
# Code built with -ffast-math switches denormals off for the process that loads it, and numpy warns.
assert np.finfo(np.float32).smallest_subnormal == tiny > 0
assert np.finfo(np.float64).smallest_subnormal == 5e-324 > 0
assert tiny * np.float32(1) == tiny and np.float64(1e-310) / 2 > 0
assert float(np.float32(1) + np.float32(2**-24)) == 1.0  # to nearest
"""


def test_no_floating_point_mode_changes() -> None:
    """Denormals stay on, rounding stays to nearest: with the import, and after a run."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
