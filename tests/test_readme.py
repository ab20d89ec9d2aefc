"""Everything README.md shows is run: Python, with the output it promises; commands; targets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyggml

ROOT = Path(__file__).parents[1]
ENV = os.environ | {"PYTHONPATH": str(Path(pyggml.__file__).parents[1])}
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def of_kind(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


PYTHON = [
    (text, BLOCKS[i + 1][1] if i + 1 < len(BLOCKS) and BLOCKS[i + 1][0] == "text" else "")
    for i, (name, text) in enumerate(BLOCKS)
    if name == "python"
]
COMMANDS = [line[2:] for text in of_kind("console") for line in text.splitlines()]
TARGETS = [line.split("#")[0].split() for text in of_kind("sh") for line in text.splitlines()]


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert {name for name, _ in BLOCKS} == {"python", "text", "console", "sh"}
    assert README.count("```") == 2 * len(BLOCKS)
    assert len(of_kind("text")) == len(PYTHON) == 2
    assert all(line.startswith("$ ") for t in of_kind("console") for line in t.splitlines())


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python(number: int, default_model: Path, tmp_path: Path) -> None:
    code, promised = PYTHON[number]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == promised


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, default_model: Path, tmp_path: Path) -> None:
    launcher = tmp_path / "pyggml"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pyggml "$@"\n')
    launcher.chmod(0o755)
    env = ENV | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("target", TARGETS, ids=" ".join)
def test_target(target: list[str]) -> None:
    """What make would do; `make test` itself would come back here."""
    done = subprocess.run([*target, "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"run": "pyggml run smollm2", "test": "-m pytest"}[target[1]] in done.stdout


def test_links() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert all((ROOT / link).exists() for link in links)
