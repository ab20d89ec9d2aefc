"""A short run of each fuzz target; docs/reliability.md tells of the long ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from fuzz import make_corpus, python_fuzz
from fuzz.gguf_fuzz import CORPUS, fuzz, read_all

from pyggml.errors import GGUFError

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    command = ["make", "-s", "-j2", "-C", str(HERE), "CC=cc", f"BUILD={folder}", "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("target", "count"), [("fuzz_graph", 20_000), ("fuzz_kernels", 5_000)])
def test_c_target(programs: Path, target: str, count: int) -> None:
    command = [str(programs / target), "--seed", "11", "--count", str(count), "--seconds", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"^inputs (\d+) ", done.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) == count


@pytest.mark.parametrize("kind", ["graph", "kernels"])
def test_corpus(programs: Path, kind: str) -> None:
    files = sorted(str(p) for p in (HERE / "corpus" / kind).iterdir())
    assert len(files) > 100
    command = [str(programs / f"fuzz_{kind}"), "--count", "0", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"files {len(files)} " in done.stdout


def test_the_corpus_reaches_most_ops(programs: Path) -> None:
    files = [str(p) for p in (HERE / "corpus/graph").iterdir()]
    command = [str(programs / "fuzz_graph"), "--count", "0", *files]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    runs = dict(re.findall(r"^op (\w+) .* run +(\d+)$", out, re.MULTILINE))
    assert len([op for op, count in runs.items() if int(count) > 0]) > 0.9 * len(runs)


@pytest.mark.parametrize("name", sorted(make_corpus.files()))
def test_gguf_corpus(name: str) -> None:
    path = CORPUS / name
    assert path.read_bytes() == make_corpus.files()[name], "run tests/fuzz/make_corpus.py"
    if name.startswith("whole"):
        read_all(path)
    else:
        with pytest.raises(GGUFError):
            read_all(path)


def test_every_op_was_run(programs: Path) -> None:
    command = [str(programs / "fuzz_graph"), "--seed", "5", "--count", "20000", "--seconds", "300"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    runs = dict(re.findall(r"^op (\w+) .* run +(\d+)$", out, re.MULTILINE))
    assert runs
    assert [op for op, count in runs.items() if int(count) == 0] == []


def test_damaged_files() -> None:
    opened, refused = fuzz(seed=1, count=1_500)
    assert opened > 0
    assert refused > 0


def test_calls_from_python() -> None:
    made, refused = python_fuzz.fuzz(seed=1, count=4_000)
    assert made.total() > refused.total() // 2
    assert len([name for name in python_fuzz.CALLS if made[name] == 0]) <= 1
