"""Graphs as Graphviz text and pictures. `dot` itself is played by a script."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg

LINE = re.compile(
    r"""\ \ (?:n(\d+)\ \[label="((?:[^"\\]|\\.)*)",[^"]*(?:"[^"]*"[^"]*)*\];
    |n(\d+)\ ->\ n(\d+)(?:\ \[.*\])?;)""",
    re.VERBOSE,
)


def parsed(text: str) -> tuple[dict[int, str], list[tuple[int, int, str]]]:
    """Labels by node, and the edges with their lines."""
    first, second, *body, last = text.splitlines()
    assert (first, second, last) == ("digraph pyggml {", "  node [fontname=monospace];", "}")
    labels, edges = {}, []
    for line in body:
        match = LINE.fullmatch(line)
        assert match, line
        if match[1] is None:
            edges.append((int(match[3]), int(match[4]), line))
        else:
            labels[int(match[1])] = match[2]
    return labels, edges


def cached() -> pg.Graph:
    g = pg.Graph()
    x = g.input("x", (1, 4))
    cache = g.const(pg.zeros((8, 4)), "cache")
    pg.ops.set_rows(cache, x, [3])
    _ = cache[2:4] + 1.0
    return g


def test_nodes_and_edges() -> None:
    labels, edges = parsed(cached().to_dot())
    assert labels[0] == r"input\nx\n(1, 4) f32"
    assert labels[1] == r"const\ncache\n(8, 4) f32"
    assert labels[3] == r"set_rows\n(8, 4) f32"
    assert [e[:2] for e in edges if "dashed" not in e[2]] == [
        (1, 3),
        (0, 3),
        (2, 3),
        (1, 4),
        (4, 5),
    ]
    assert [re.findall(r'label="(\w+)"', e[2]) for e in edges[:3]] == [["dst"], ["x"], ["ids"]]


def test_kinds_look_different() -> None:
    g = cached()
    styles = {n: re.search(rf"n{n} \[.*?\", (shape.*)\];", g.to_dot())[1] for n in (0, 1, 3, 4, 5)}
    assert len(set(styles.values())) == 5


def test_a_write_shows_its_readers() -> None:
    _, edges = parsed(cached().to_dot())
    dashed = [e[:2] for e in edges if "dashed" in e[2]]
    assert dashed == [(3, 4), (3, 5)]  # the view and what reads it see what was written


def test_constants_over_common_memory_are_one() -> None:
    memory = np.zeros((4, 4), np.float32)
    g = pg.Graph()
    whole, part, other = (g.const(a) for a in (memory, memory[1:3], np.zeros(4, np.float32)))
    wrote = pg.ops.cpy(g.input("x", (2, 4)), part)
    readers = [whole.sum(), other.sum()]
    _, edges = parsed(g.to_dot())
    assert [e[:2] for e in edges if "dashed" in e[2]] == [(wrote.id, readers[0].id)]


def test_hostile_names() -> None:
    names = [
        '"]; evil [label="',
        "a\\",
        'b\\"',
        "new\nline",
        "\x1b[31m\x00".replace("\0", ""),
        "&lt;<b>",
        "é",
    ]
    g = pg.Graph()
    for name in names:
        g.input(name, (1,))
    labels, edges = parsed(g.to_dot())
    assert len(labels) == len(names)
    assert edges == []
    assert "evil" in labels[0]
    assert labels[1].split(r"\n")[1] == "a\\\\"
    assert "\x1b" not in g.to_dot()
    assert "&amp;lt;" in labels[5]
    assert "é" in labels[6]


def test_an_empty_graph() -> None:
    assert parsed(pg.Graph().to_dot()) == ({}, [])


def test_long_chains() -> None:
    g = pg.Graph()
    x = g.input("x", (2,))
    for _ in range(3000):
        x = x + 1.0
    labels, edges = parsed(g.to_dot())
    assert (len(labels), len(edges)) == (3001, 3000)


@pytest.fixture
def dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `dot` that notes how it was called and gives back what it was given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "dot"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"open({str(tmp_path / 'called')!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        "sys.stdout.write('<svg>' + sys.stdin.read())\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return tmp_path


def test_draw(dot: Path) -> None:
    g = cached()
    for name, kind in (("a.svg", "svg"), ("b.PNG", "png"), ("c", "svg")):
        g.draw(dot / name)
        assert (dot / name).read_text() == "<svg>" + g.to_dot()
        assert f"-T{kind}" in (dot / "called").read_text()
    for path in (None, 1, object()):
        with pytest.raises(pg.ParameterError, match=r"draw: .* is no path"):
            g.draw(path)
    with pytest.raises(FileNotFoundError, match="missing"):
        g.draw(dot / "missing" / "a.svg")
    with pytest.raises(pg.ParameterError, match=r"'\.exe' is not a format"):
        g.draw(str(dot / "x.exe"))


def test_a_dot_that_fails(dot: Path) -> None:
    (dot / "bin/dot").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such renderer')\n")
    with pytest.raises(pg.ParameterError, match="cannot make pdf of it"):
        cached().draw(dot / "x.pdf")
    assert not (dot / "x.pdf").exists()


def test_draw_without_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="`dot` is not on the PATH"):
        cached().draw(tmp_path / "x.svg")
    assert list(tmp_path.iterdir()) == []


def test_draw_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match=r'pip install "pyggml\[plot\]"'):
        cached().draw(tmp_path / "x.svg")


def test_writes_into_intermediates_are_shown() -> None:
    g = pg.Graph()
    x = g.input("x", (4,))
    base = x * 1.0
    w = pg.ops.cpy(np.float32([1, 2]), base[1:3])
    _, edges = parsed(g.to_dot())
    after = base + 0.0
    _, more = parsed(g.to_dot())
    assert (w.id, after.id) in [e[:2] for e in more if "dashed" in e[2]]
    assert not any("dashed" in e[2] for e in edges)
