"""The Python of docs/*.md is run: the blocks of a page in order, with the output each promises.

A block marked `python` is run, and a `text` block right after it is what it prints. Excerpts that
are only to be read are marked `py`. Links and names of files lead somewhere.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> list[tuple[str, str | None]]:
    """Each Python block with the output that it promises, None when it promises none."""
    found: list[tuple[str, str | None]] = []
    end = -1
    for block in BLOCK.finditer(text):
        follows = text[end : block.start()].strip() == "" if end >= 0 else False
        end = -1
        if block[1] == "python":
            found.append((block[2], None))
            end = block.end()
        elif block[1] == "text" and follows:
            found[-1] = (found[-1][0], block[2])
    return found


def run(code: str, names: dict[str, Any], page: str) -> str:
    """What the code prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), names)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    assert text.count("```") == 2 * len(BLOCK.findall(text))
    names: dict[str, Any] = {"__name__": "__main__"}
    for code, promised in examples(text):
        printed = run(code, names, page.name)
        assert printed == (promised or "")


def anchors(path: Path) -> set[str]:
    text = path.read_text()
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{link} leads to no heading"


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_paths_exist(path: Path) -> None:
    """Files of the tree that a page names in backquotes, from the root or from csrc/."""
    for name in re.findall(r"`((?:[\w.]+/)+[\w.]+\.(?:c|h|inc|py|pyx|md|toml))`", path.read_text()):
        roots = (ROOT, ROOT / "csrc", ROOT / "pyggml", path.parent)
        assert any((root / name).exists() for root in roots), f"there is no {name}"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    for path in PAGES:
        name = path.relative_to(DOCS).as_posix()
        assert name == "README.md" or f"]({name})" in index, f"docs/README.md leaves {name} out"


def test_the_worked_example_is_in_the_tree() -> None:
    """Every line that the example of docs/add_an_op.md adds is there; it takes five files."""
    diff = next(b[2] for b in BLOCK.finditer((DOCS / "add_an_op.md").read_text()) if b[1] == "diff")
    parts = re.split(r"^--- a/.*\n\+\+\+ b/(.*)$", diff, flags=re.MULTILINE)[1:]
    changed = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(changed) <= 5
    for name, lines in changed.items():
        known = set((ROOT / name).read_text().splitlines())
        assert {line[1:] for line in lines.splitlines() if line.startswith("+")} <= known, name


def test_the_guides_are_there() -> None:
    for name in ("graphs.md", "threads.md"):
        assert len(examples((DOCS / name).read_text())) >= 1


def test_the_rules_can_fail() -> None:
    text = "```python\nprint(1)\n```\n\n```text\n1\n```\nand\n```text\n2\n```\n```py\nno\n```\n"
    assert examples(text) == [("print(1)\n", "1\n")]
    assert run("print(x + 1)", {"x": 1}, "page") == "2\n"
    with pytest.raises(ZeroDivisionError):
        run("1 / 0", {}, "page")
