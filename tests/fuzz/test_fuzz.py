"""A short run of each fuzz target; docs/reliability.md tells of the long ones."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from fuzz import make_corpus, python_fuzz
from fuzz.gguf_fuzz import CORPUS, fuzz, read_all

from pyggml.errors import GGUFError

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("PYGGML_FUZZ_SECONDS", "5"))
TARGETS = ("fuzz_graph", "fuzz_kernels")


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


@pytest.mark.parametrize("target", TARGETS)
def test_c_target_for_a_fixed_time(programs: Path, target: str) -> None:
    """PYGGML_FUZZ_SECONDS of inputs that the counted run does not reach."""
    count = 10**12
    command = [str(programs / target), "--seed", "12", "--count", str(count), "--seconds"]
    done = subprocess.run([*command, str(SECONDS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"^inputs (\d+) ", done.stdout, re.MULTILINE)
    assert found is not None
    assert 0 < int(found[1]) < count


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--verbose", "FILE"], "unknown option --verbose"),
        (["-h"], "unknown option -h"),
        (["--count=3"], "unknown option --count=3"),
        (["--count"], "no value after --count"),
        (["--seed", "two"], "not a number: two"),
        (["--seconds", "5s"], "not a number: 5s"),
        (["--count", "0", "no/such/file"], "cannot read no/such/file"),
    ],
)
def test_c_target_refuses(programs: Path, target: str, arguments: list[str], why: str) -> None:
    done = subprocess.run(
        [str(programs / target), *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fuzz: {why}\n")


def test_options_hold_for_files_before_them(programs: Path) -> None:
    path = str(HERE / "corpus/kernels/nan_and_nan")
    command = [str(programs / "fuzz_kernels"), path, "--tell", "--count", "0"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.startswith("q5_1, blocks of 24 bytes: ")
    assert "inputs 0 files 1 " in out


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


@pytest.mark.parametrize("name", make_corpus.NAMED)
def test_named_inputs_reach_what_they_are_named_for(programs: Path, name: str) -> None:
    """They stop doing so when bytes come to mean something else."""
    path = HERE / "corpus" / name
    told = make_corpus.tell(programs, name, "--count", 0, path)
    assert make_corpus.reaches(programs, name, path), f"make_corpus.py makes it anew; now:\n{told}"


def test_every_named_input_is_listed() -> None:
    found = {
        f"{kind}/{path.name}"
        for kind in ("graph", "kernels")
        for path in (HERE / "corpus" / kind).iterdir()
        if re.fullmatch(r"[0-9a-f]{12}", path.name) is None
    }
    assert found == set(make_corpus.NAMED)


def test_an_empty_input_reaches_none_of_them(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in make_corpus.NAMED:
        assert not make_corpus.reaches(programs, name, tmp_path / "empty"), name


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
    assert [name for name in python_fuzz.CALLS if made[name] == 0] == []
