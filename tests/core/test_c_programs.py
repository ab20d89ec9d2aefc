"""The C tests (tests/c), which link without Python: plain, and under clang's ThreadSanitizer."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

C_TESTS = Path(__file__).parents[1] / "c"
PROGRAMS = ("test_cpus", "test_pool", "test_pool_fork", "test_room", "test_turns")

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or shutil.which("cc") is None, reason="needs make and cc"
)


def run(*command: str | Path, timeout: float = 400) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def check_sums(output: str) -> None:
    """Every sum in the output counts some checks and no failure."""
    sums = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
    assert sums
    assert all(int(passed) > 0 and int(failed) == 0 for passed, failed in sums), output


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, tmp_path: Path) -> None:
    run("make", "-C", C_TESTS, program, "CC=cc", f"BUILD={tmp_path}")
    check_sums(run(tmp_path / program))


def tsan_works(folder: Path) -> bool:
    """Whether clang links ThreadSanitizer and the kernel lets such a program start."""
    if shutil.which("clang") is None:
        return False
    source, program = folder / "probe.c", folder / "probe"
    source.write_text("int main(void) { return 0; }\n")
    build = ["clang", "-fsanitize=thread", str(source), "-o", str(program)]
    return all(
        subprocess.run(command, capture_output=True, check=False).returncode == 0
        for command in (build, [str(program)])
    )


def test_thread_sanitizer(tmp_path: Path) -> None:
    if not tsan_works(tmp_path):
        pytest.skip("needs clang with ThreadSanitizer")
    output = run("make", "-C", C_TESTS, "tsan", f"BUILD={tmp_path}")
    assert "ThreadSanitizer" not in output
    check_sums(output)
