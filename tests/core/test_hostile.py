"""Hostile calls: only the promised exceptions may come out, whatever is passed in.

The walks run in processes of their own, so that a crash is a failing test that names its seed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml.rows import OPS

SCRIPT = Path(__file__).with_name("hostile_calls.py")
CALLS = 2500


def walk(seed: int) -> str:
    """Output of one walk that must end well."""
    command = [sys.executable, "-X", "faulthandler", str(SCRIPT), str(seed), str(CALLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    last = done.stdout.splitlines()[-1] if done.stdout else "none"
    assert done.returncode == 0, f"seed {seed}, call {last}, ends {done.returncode}\n{done.stderr}"
    return last


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(seed: int) -> None:
    last = walk(seed)
    # enough of the calls go through for the rest to be reached in depth
    assert int(last.split()[1]) > CALLS // 4, last


def test_ten_thousand_nodes() -> None:
    g = pg.Graph()
    x = g.input("x", (3,))
    node = x
    for _ in range(10_000):
        node = node + x
    assert len(g) == 10_001
    program = g.compile(node)
    value = np.array([1, 2, -3], np.float32)
    assert np.array_equal(program(x=value), value * 10_001)
    assert program.arena_bytes < 1 << 16


def test_ten_thousand_live_at_once() -> None:
    g = pg.Graph()
    x = g.input("x", (2,))
    nodes = [x * float(i) for i in range(3000)]
    results = g.compile(nodes)(x=np.ones(2, np.float32))
    assert all(np.array_equal(r, [i, i]) for i, r in enumerate(results))


def test_floats_are_no_integers() -> None:
    g = pg.Graph()
    with pytest.raises(pg.ParameterError, match=r"input 'x': shape: 2\.5 is not an integer"):
        g.input("x", (2.5,))
    x = g.input("x", (4, 4))
    with pytest.raises(pg.ParameterError, match=r"compile: threads: 1\.5 is not an integer"):
        g.compile(x, threads=1.5)
    with pytest.raises(pg.ParameterError, match=r"shape: 2\.5 is not an integer"):
        pg.zeros((2.5,))
    with pytest.raises(pg.ParameterError):
        g._core.op(0, [x.id], {"ndim": 2.0, "start": [0, 0], "step": [1, 1], "size": [4, 4]})
    with pytest.raises(TypeError):
        g._core.op(0, [0.5], {"ndim": 2, "start": [0, 0], "step": [1, 1], "size": [4, 4]})


def test_outputs_are_read_once() -> None:
    """A sequence that answers differently the second time must not make the sizes wrong."""

    class Changing:
        def __init__(self) -> None:
            self.asked = 0

        def __len__(self) -> int:
            return 1

        def __getitem__(self, i: int) -> int:
            if i > 0:
                raise IndexError
            self.asked += 1
            return 0 if self.asked == 1 else 1

    g = pg.Graph()
    g.input("big", (64,))
    g.input("small", (1,))
    core = pg._core.Program(g._core, Changing(), 1, None)
    with pytest.raises(pg.ShapeError, match=r"output 0: 4 bytes, 256 expected"):
        core.run([np.zeros(64, np.float32)], [np.zeros(1, np.float32)])


def test_captured_buffer_cannot_shrink() -> None:
    g = pg.Graph()
    data = bytearray(64)
    g._core.const(data, pg.f32.id, (16,), "c", True)
    with pytest.raises(BufferError):
        data.clear()


def test_memory_must_be_aligned() -> None:
    g = pg.Graph()
    raw = np.zeros(68, np.uint8)
    at = -raw.ctypes.data % 4 + 1
    with pytest.raises(pg.ParameterError, match="aligned to 4 bytes"):
        g._core.const(raw[at : at + 64], pg.f32.id, (16,), "c", False)
    with pytest.raises(pg.ParameterError, match="not aligned"):
        pg._core.to_f32(pg.f16.id, bytes(8), raw[at : at + 16])


def test_enum_and_axes_out_of_range() -> None:
    g = pg.Graph()
    x = g.input("x", (2, 3, 8))
    with pytest.raises(pg.ParameterError, match="mode must be one of norm, neox"):
        pg.ops.rope(x, [0, 1], mode="gptj")
    for axes in ([0, 1, 2**63 - 1], [-(2**63), 1, 0], [0, 0, 1], [0, 1], [3, 1, 0], [-1, 0, 1]):
        with pytest.raises(pg.PyggmlError):
            g._core.op(OPS["permute"].number, [x.id], {"axes": axes})
