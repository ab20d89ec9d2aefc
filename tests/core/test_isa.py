"""The choice of kernels at import, and the floating-point state of the host."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import pyggml as pg
from oracles import formats

STATE_C = r"""
#include <stdint.h>
#if defined(__SSE__)
#include <xmmintrin.h>
uint64_t state(void) { return _mm_getcsr() & ~0x3Fu; } /* without the sticky flags */
void set_state(uint64_t s) { _mm_setcsr((unsigned)s); }
uint64_t flushing(void) { return state() | 0x8040u; }
uint64_t upward(void) { return (state() & ~0x6000u) | 0x4000u; }
#elif defined(__aarch64__)
uint64_t state(void) { uint64_t s; __asm__ volatile("mrs %0, fpcr" : "=r"(s)); return s; }
void set_state(uint64_t s) { __asm__ volatile("msr fpcr, %0" : : "r"(s)); }
uint64_t flushing(void) { return state() | 1u << 24; }
uint64_t upward(void) { return (state() & ~0xC00000ull) | 0x400000u; }
#endif
"""


@pytest.fixture(scope="module")
def fpu(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("fpu")
    (folder / "state.c").write_text(STATE_C)
    cc = os.environ.get("CC", "cc").split()
    command = [*cc, "-shared", "-fPIC", "-O1", "state.c", "-o", "state.so"]
    subprocess.run(command, cwd=folder, check=True)
    lib = ctypes.CDLL(str(folder / "state.so"))
    for name in ("state", "flushing", "upward"):
        getattr(lib, name).restype = ctypes.c_uint64
    lib.set_state.argtypes = [ctypes.c_uint64]
    return lib


def python(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# ---- instruction sets ----


def test_choices() -> None:
    assert pg.isas()[0] == "generic"
    assert pg.isa() in pg.isas()
    assert len(set(pg.isas())) == len(pg.isas())


def test_the_best_is_the_default() -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYGGML_ISA"}
    for extra in ({}, {"PYGGML_ISA": ""}):
        out = subprocess.run(
            [sys.executable, "-c", "import pyggml as pg; print(pg.isa(), pg.isas()[-1])"],
            env={**env, **extra},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert out[0] == out[1]


@pytest.mark.parametrize("name", pg.isas())
def test_forced(name) -> None:
    script = """
import numpy as np, pyggml as pg
g = pg.Graph()
x = g.input("x", (4, 32))
r = g.compile(pg.ops.mul_mat(pg.tensor(np.eye(32), dtype="f8_e4m3"), x))
assert np.array_equal(r(x=np.ones((4, 32), np.float32)), np.ones((4, 32)))
print(pg.isa())
"""
    done = python(script, PYGGML_ISA=name)
    assert done.stdout == f"{name}\n", done.stderr


BAD = ["bogus", "AVX2", "generic ", "a" * 5000, "%s%n", "\udcff"]


@pytest.mark.parametrize("name", BAD)
def test_unknown_names(name) -> None:
    done = python("import pyggml", PYGGML_ISA=name)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pyggml.errors.InstructionSetError: PYGGML_ISA=")
    assert "choose from generic" in last
    assert "The above exception" not in done.stderr


def test_the_error_is_an_import_error() -> None:
    """Who guards an optional import need not know pyggml's classes."""
    assert issubclass(pg.InstructionSetError, (pg.PyggmlError, ImportError))
    script = "try:\n import pyggml\nexcept ImportError as e:\n print(type(e).__mro__[1].__name__)"
    assert python(script, PYGGML_ISA="avx9").stdout == "PyggmlError\n"


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("args", [["-m", "pyggml", "run", "x"], ["-X", "utf8", "-mpyggml"]])
def test_the_command_ends_without_a_traceback(name, args) -> None:
    done = subprocess.run(
        [sys.executable, *args],
        env={**os.environ, "PYGGML_ISA": name},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: PYGGML_ISA=")
    assert done.stderr.count("\n") == 1


def test_the_script_ends_without_a_traceback(tmp_path) -> None:
    script = tmp_path / "pyggml"
    script.write_text("from pyggml.cli import main\nmain()\n")
    other = tmp_path / "program"
    other.write_text(script.read_text())
    env = {**os.environ, "PYGGML_ISA": "avx9", "PYTHONPATH": os.pathsep.join(sys.path)}
    ends = [
        subprocess.run(
            [sys.executable, path, "-m", "pyggml"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        for path in (script, other)
    ]
    assert [e.returncode for e in ends] == [2, 1]
    assert ends[0].stderr.startswith("error: PYGGML_ISA=avx9: isa: 'avx9' is not")
    assert ends[1].stderr.startswith("Traceback")


# ---- floating-point state ----


def test_import_changes_nothing(fpu) -> None:
    script = f"""
import ctypes, threading
lib = ctypes.CDLL({fpu._name!r})
lib.state.restype = ctypes.c_uint64
import numpy as np
def look():
    tiny = np.float32(1e-38)
    return lib.state(), float(np.finfo(np.float32).smallest_subnormal), float(tiny / np.float32(8))
before = look()
import pyggml as pg
g = pg.Graph()
x = g.input("x", (64, 64))
g.compile(pg.ops.mul_mat(x, x), threads=4)(x=np.ones((64, 64), np.float32))
seen = [look()]
worker = threading.Thread(target=lambda: seen.append(look()))
worker.start()
worker.join()
assert before[1] > 0 and before[2] > 0
assert seen == [before, before], (before, seen)
print("same")
"""
    done = python(script)
    assert done.stdout == "same\n", done.stderr


class Host:
    """The host's state, changed for a while."""

    def __init__(self, fpu: ctypes.CDLL, name: str) -> None:
        self.fpu, self.name = fpu, name

    def __enter__(self) -> None:
        self.before = self.fpu.state()
        self.set = getattr(self.fpu, self.name)()
        self.fpu.set_state(self.set)

    def __exit__(self, *_: object) -> None:
        self.after = self.fpu.state()
        self.fpu.set_state(self.before)
        assert self.after == self.set, "the state that the host had set is lost"


@pytest.mark.parametrize("name", ["flushing", "upward"])
def test_conversions_ignore_the_host(fpu, name) -> None:
    """All 256 codes, every rounding boundary of E4M3 and its neighbours."""
    codes = np.arange(256, dtype=np.uint8)
    edges = formats.e4m3_boundaries()
    values = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    values = np.concatenate([values, np.float32([1e-40, -1e-45, 0.0, -0.0, 448, 1e30])])
    expected_codes = formats.e4m3_encode(values)
    expected_values = formats.e4m3_decode(codes).astype(np.float32)
    coded = pg.Tensor.from_raw(codes, (256,), "f8_e4m3")
    g = pg.Graph()
    programs = [
        (
            g.compile(pg.ops.cast(g.input(f"x{t}", values.shape), "f8_e4m3"), threads=t),
            g.compile(pg.ops.cast(g.const(coded), "f32"), threads=t),
        )
        for t in (1, 3)
    ]
    with Host(fpu, name):
        encoded = pg.tensor(values, dtype="f8_e4m3")
        decoded = coded.dequantize()
        runs = [(p(**{f"x{t}": values}), q()) for t, (p, q) in zip((1, 3), programs, strict=True)]
    assert np.array_equal(encoded.raw(), expected_codes)
    assert np.array_equal(decoded, expected_values, equal_nan=True)
    for down, up in runs:
        assert np.array_equal(down.view(np.uint8), expected_codes)
        assert np.array_equal(up, expected_values, equal_nan=True)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_runs_keep_denormals(fpu, threads) -> None:
    values = np.full((64, 1000), 1e-40, np.float32)
    expected = (values * np.float32(0.5)).tobytes()
    g = pg.Graph()
    program = g.compile(pg.ops.scale(g.input("x", values.shape), 0.5), threads=threads)
    results: list[bytes] = []
    with Host(fpu, "flushing"):
        results.append(program(x=values).tobytes())
    worker = threading.Thread(target=lambda: results.append(program(x=values).tobytes()))
    worker.start()
    worker.join()
    assert results == [expected, expected]
