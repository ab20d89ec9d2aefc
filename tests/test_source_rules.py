"""Rules of the source tree that no linter knows: sizes, layering, what C may not call."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"

MAX_FILE = 600
MAX_COLUMNS = 100
MAX_FUNCTION = 60
BANNED_CALLS = (
    "abort", "assert", "exit", "_exit", "quick_exit", "raise", "getenv", "secure_getenv",
    "printf", "fprintf", "vprintf", "vfprintf", "puts", "fputs", "putchar", "perror",
)  # fmt: skip

# Who may include whom: a folder only includes folders that are not above it.
LEVELS = {".": 0, "core": 0, "formats": 1, "thread": 1, "kernels": 2, "ops": 3, "graph": 4}
SEPARATE_HEADERS = ("", "core", "formats", "thread", "ops", "graph")

# In two halves, so that this file does not hold what it looks for.
UNFINISHED = re.compile("|".join((r"\bTO" + "DO", r"\bFIX" + "ME", "NotImpl" + "ementedError")))
MACHINE_PATHS = re.compile(r"(?<![\w.~}])/(?:home|root|work|Users|opt|tmp)/[\w.]")
INDEX_HOSTS = re.compile(r"pypi\.org|pythonhosted")


def files(folder: str, *endings: str) -> list[Path]:
    """Files below a folder of the tree that belong to it, by ending."""
    return sorted(
        path
        for ending in endings
        for path in (ROOT / folder).rglob(f"*{ending}")
        if "build" not in path.parts and path.name != "_core.c"
    )


C_FILES = [
    *files("csrc", ".c", ".h", ".inc"),
    *(p for folder in ("tests/c", "tests/fuzz") for p in files(folder, ".c", ".h")),
]
PY_FILES = [
    path
    for folder in ("pyggml", "tests", "bench")
    for path in files(folder, ".py", ".pyx", ".pxd", ".pxi", ".pyi")
]
TEXT_FILES = [
    *C_FILES,
    *PY_FILES,
    *files("docs", ".md"),
    *(p for p in ROOT.iterdir() if p.suffix in (".md", ".py", ".toml", ".in", ".yaml")),
    *(ROOT / name for name in ("Makefile", ".ci/run", "tests/c/Makefile")),
]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def without_comments(text: str) -> str:
    """C code with comments and the insides of strings blanked; lines stay where they are."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        if match[0][0] in "\"'":
            return '""'
        return re.sub(r"[^\n]", " ", match[0])

    return token.sub(blank, text)


def c_functions(code: str) -> Iterator[tuple[int, int]]:
    """First and last line of every block that ends with a brace alone in column 0."""
    depth = start = 0
    code = code.replace('extern "" {', "")
    for number, line in enumerate(code.splitlines(), start=1):
        if depth == 0 and "{" in line:
            start = number
        depth = max(0, depth + line.count("{") - line.count("}"))
        if depth == 0 and start and line == "}":
            yield start, number
            start = 0


def python_functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function, its docstring left out."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lines = (node.end_lineno or 0) - node.lineno + 1
        first = node.body[0]
        if ast.get_docstring(node) is not None:
            lines -= (first.end_lineno or 0) - first.lineno + 1
        yield node.name, lines


def test_the_lists_are_not_empty() -> None:
    assert len(C_FILES) > 40
    assert len(PY_FILES) > 40
    assert CSRC / "pyggml.h" in C_FILES
    assert ROOT / "pyproject.toml" in TEXT_FILES


@pytest.mark.parametrize("path", [*C_FILES, *PY_FILES], ids=relative)
def test_file_length(path: Path) -> None:
    assert path.suffix == ".inc" or len(path.read_text().splitlines()) <= MAX_FILE


@pytest.mark.parametrize("path", C_FILES, ids=relative)
def test_c_text(path: Path) -> None:
    text = path.read_text()
    assert text.isascii()
    assert not re.search(r"^\s*#\s*if 0\b", text, re.MULTILINE)
    assert "\t" not in text
    if path.suffix != ".inc":  # table rows are as long as they need to be
        assert [n for n, line in enumerate(text.splitlines(), 1) if len(line) > MAX_COLUMNS] == []
    long = [
        (first, last - first + 1)
        for first, last in c_functions(without_comments(text))
        if last - first + 1 > MAX_FUNCTION
    ]
    assert long == []


@pytest.mark.parametrize("path", [p for p in PY_FILES if p.suffix == ".py"], ids=relative)
def test_python_function_length(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert [f for f in python_functions(tree) if f[1] > MAX_FUNCTION] == []


@pytest.mark.parametrize("path", files("csrc", ".c", ".h", ".inc"), ids=relative)
def test_c_calls(path: Path) -> None:
    """The library never ends the process, prints, or reads the environment."""
    code = without_comments(path.read_text())
    assert re.findall(rf"(?<![\w.>])(?:{'|'.join(BANNED_CALLS)})\s*\(", code) == []


@pytest.mark.parametrize("path", files("csrc", ".c", ".h"), ids=relative)
def test_no_switch_over_tables(path: Path) -> None:
    """Ops and dtypes are asked for their row; nothing lists them."""
    code = without_comments(path.read_text())
    assert re.findall(r"\bcase\s+PYG_\w+", code) == []
    assert re.findall(r"\bswitch\s*\([^)]*\b(?:op|dtype|type)\b[^)]*\)", code) == []


@pytest.mark.parametrize("path", files("csrc", ".c", ".h"), ids=relative)
def test_includes_run_downward(path: Path) -> None:
    own = LEVELS[path.relative_to(CSRC).parts[0] if path.parent != CSRC else "."]
    for target in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.MULTILINE):
        assert (CSRC / target).is_file(), f"{target} is not a path from csrc/"
        folder = target.split("/")[0] if "/" in target else "."
        assert LEVELS[folder] <= own, f"{relative(path)} includes {target}, which lies above it"


@pytest.mark.parametrize("path", files("csrc", ".c"), ids=relative)
def test_own_header_comes_first(path: Path) -> None:
    own = path.with_suffix(".h")
    first = re.search(r'^\s*#\s*include ([<"][^>"]+[>"])', path.read_text(), re.MULTILINE)
    assert first is not None
    assert not own.exists() or first[1] == f'"{own.relative_to(CSRC).as_posix()}"'


def test_headers_compile_alone(tmp_path: Path) -> None:
    """The headers of the vector layer are left out: each belongs inside a target region."""
    headers = [p for folder in SEPARATE_HEADERS for p in sorted((CSRC / folder).glob("*.h"))]
    headers.append(CSRC / "kernels/kernels.h")
    assert len(headers) > 15
    for header in headers:
        source = tmp_path / "alone.c"
        source.write_text(f'#include "{header.relative_to(CSRC).as_posix()}"\nint main(void);\n')
        done = subprocess.run(
            ["cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
             "-Wno-unused-function", "-D_GNU_SOURCE", f"-I{CSRC}", source],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{relative(header)}:\n{done.stderr}"


@pytest.mark.parametrize("path", TEXT_FILES, ids=relative)
def test_nothing_unfinished_or_local(path: Path) -> None:
    text = path.read_text()
    assert UNFINISHED.findall(text) == []
    assert MACHINE_PATHS.findall(text) == []
    assert path == Path(__file__) or INDEX_HOSTS.findall(text) == []


def test_the_rules_can_fail() -> None:
    code = without_comments('/* exit(1) */ x = "abort()"; // printf\n  exit (1);')
    assert "exit (1)" in code
    assert code.count("exit") == 1
    assert "abort" not in code
    assert list(c_functions("int f(int a,\n      int b) {\n    if (a) {\n    }\n}\n")) == [(2, 5)]
    assert list(c_functions("static int t[] = {\n 1,\n};\n")) == []
    doc = 'def f():\n    """A\n\n    B."""\n    return 1\n'
    assert list(python_functions(ast.parse(doc))) == [("f", 2)]
    assert MACHINE_PATHS.search("see /" + "home/me/x")
    assert not MACHINE_PATHS.search("the ~/home/x or a/work/b or $X/tmp/c")
