"""What every command shares: consoles, clean error messages, the progress bar."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from pyggml.errors import PyggmlError
from pyggml.tools.inspect import printable

_PIPE_WIDTH: Final = 160  # columns of tables that go to a file or another program
_INTERRUPTED: Final = 130  # exit codes as a shell would give them
_TERMINATED: Final = 143
_BROKEN_PIPE: Final = 141

_STAGES: Final = {"check": "checking", "download": "downloading", "unpack": "unpacking"}
# C0 and C1 controls but tab and newline: a model's text must not drive the terminal
_CONTROLS: Final = {code: "\ufffd" for code in (*range(9), *range(11, 32), *range(127, 160))}


class _Console(Console):
    """A console that leaves broken pipes to `clean_errors`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def out() -> Console:
    """The console for results."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return _Console(width=width, highlight=False, markup=False)


def err() -> Console:
    """The console for everything else."""
    return _Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def print_error(message: str) -> None:
    """One red line on stderr."""
    err().print(Text("error: ", style="bold red") + Text(printable(message, keep="\n"), "red"))


def write_text(text: str) -> None:
    """Show a piece of generated text on stdout at once; as it is where that is no terminal."""
    sys.stdout.write(text.translate(_CONTROLS) if sys.stdout.isatty() else text)
    sys.stdout.flush()


@contextlib.contextmanager
def clean_errors() -> Iterator[None]:
    """Turns what users can cause into one line and an exit code, without a traceback."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read us has left: nothing to say, and nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(_BROKEN_PIPE) from None
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except PyggmlError as error:
        print_error(str(error))
        raise typer.Exit(1) from None
    except OSError as error:
        print_error(_os_error_text(error))
        raise typer.Exit(1) from None


def _os_error_text(error: OSError) -> str:
    """The message without the number, which says nothing to most people."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def set_up_process() -> None:
    """Makes output never fail on a character, and SIGTERM clean up like any exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A callback for `pull` that draws a bar on stderr; where that is no terminal, none."""
    bar = Progress(
        TextColumn("{task.description:12}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=err(),
        transient=True,
    )
    tasks = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bar.add_task(_STAGES[stage], total=total)
        bar.update(tasks[stage], completed=done)

    with bar if sys.stderr.isatty() else contextlib.nullcontext():
        yield report
