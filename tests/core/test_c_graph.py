"""tests/c/test_graph.c: the runtime linked into a C program, without Python."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
CC = os.environ.get("CC", "cc").split()
FLAGS = ["-std=c11", "-O0", "-ffp-contract=off", "-pthread", "-Icsrc", "-Itests/c"]


def compile_one(source: Path, folder: Path) -> Path:
    target = folder / f"{source.parent.name}_{source.stem}.o"
    command = [*CC, *FLAGS, "-c", str(source), "-o", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return target


def test_graph_from_c(tmp_path: Path) -> None:
    sources = [*sorted((ROOT / "csrc").rglob("*.c")), ROOT / "tests/c/test_graph.c"]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda s: compile_one(s, tmp_path), sources))
    program = tmp_path / "test_graph"
    link = [*CC, "-pthread", *map(str, objects), "-lm", "-o", str(program)]
    subprocess.run(link, check=True, capture_output=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    passed, failed = map(int, re.findall(r"(\d+) passed, (\d+) failed", done.stdout)[0])
    assert passed >= 50
    assert failed == 0
