"""Facts about the machine and the tree, for the reports of the benchmarks."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_FLAGS = [
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
]
_THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_", "GGML_", "PYGGML_")


def facts() -> dict[str, Any]:
    """Date, processor, kernel and the environment that steers threads."""
    cpu = cpu_info()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu["model"],
        "cpu_flags": cpu["flags"],
        "logical_cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "environment": {
            k: v for k, v in sorted(os.environ.items()) if k.startswith(_THREAD_VARIABLES)
        },
    }


def cpu_info() -> dict[str, Any]:
    """Model name and the instruction sets that matter here."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return {"model": platform.processor(), "flags": []}
    text = info.read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.M)
    has = set(flags[1].split()) if flags else set()
    name = model[1] if model else platform.processor()
    return {"model": name, "flags": [f for f in _FLAGS if f in has]}


def load_average() -> list[float]:
    """Of 1, 5 and 15 minutes."""
    return [round(x, 2) for x in os.getloadavg()]


def commit() -> dict[str, Any]:
    """The tree's commit, and whether what is built or imported differs from it."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", "pyggml", "csrc", "setup.py")
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "changed_files": None}
    return {"commit": head, "changed_files": len(changed.splitlines())}


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def sha256(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
