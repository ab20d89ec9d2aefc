"""Builds csrc/ and pyggml/_core.pyx into one extension module."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent.resolve()
DEBUG = os.environ.get("PYGGML_DEBUG", "") == "1"

# No -march, no -ffast-math: kernels choose their instruction set in their own target regions, and
# FMA is written as an intrinsic, so that results do not depend on the compiler.
CFLAGS = ["-std=c11", "-ffp-contract=off", "-fvisibility=hidden"]
CFLAGS += ["-O1", "-g", "-DPYG_DEBUG"] if DEBUG else ["-O2", "-g0"]
LDFLAGS = ["-pthread", "-lm"]
if os.environ.get("PYGGML_WERROR", "") == "1":
    CFLAGS += ["-Wall", "-Wextra", "-Wshadow", "-Wvla"]

# Bounds checks stay on: the wrapper is thin, and nothing a caller passes may crash the process.
DIRECTIVES = {"language_level": 3, "binding": True, "boundscheck": True, "wraparound": True}


def sources() -> list[str]:
    """The C files of the runtime, relative to this file as sdists need them."""
    return sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "csrc").rglob("*.c"))


def headers() -> list[str]:
    """Files whose change makes everything compile again."""
    found = [*(ROOT / "csrc").rglob("*.h"), *(ROOT / "csrc").rglob("*.inc")]
    return sorted(p.relative_to(ROOT).as_posix() for p in found)


if sys.platform == "win32":
    raise SystemExit("pyggml needs a POSIX system (Linux or macOS)")

core = Extension(
    "pyggml._core",
    sources=["pyggml/_core.pyx", *sources()],
    include_dirs=["csrc"],
    depends=[
        *headers(),
        "pyggml/_core.pxd",
        "pyggml/_dlpack.pxi",
        "pyggml/_graph.pxi",
        "pyggml/_params.pxi",
    ],
    extra_compile_args=CFLAGS,
    extra_link_args=LDFLAGS,
)

setup(ext_modules=cythonize([core], compiler_directives=DIRECTIVES))
