"""What a Program's nodes cost (`Profile`) and where their memory lies (`MemoryPlan`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pyggml import _core
from pyggml.checks import shown
from pyggml.dtypes import DTYPES
from pyggml.errors import ParameterError
from pyggml.rows import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyggml._core import _KeptNode, _Memory


@dataclass(frozen=True)
class Peak:
    """What the machine reaches with some number of threads, measured in C.

    Attributes:
        threads: that number.
        bytes_per_second: read and written by memcpy from 64 MiB to 64 MiB, the best of 50 ms.
        flops_per_second: of the matrix product's inner tile, in the instruction set in use, with
            operands in the first cache, the best of 50 ms.
    """

    threads: int
    bytes_per_second: float
    flops_per_second: float


@cache
def measured_peak(threads: int) -> Peak:
    """The peak for a number of threads, measured at the first call."""
    return Peak(threads, *_core.measure_peak(threads))


@dataclass(frozen=True)
class Cost:
    """A row of a profile: one node, or all nodes of one op.

    Attributes:
        name: the node's name, or "" (by op: always "").
        op: name of the op.
        shape: of the result; None for a row by op.
        dtype: of the result; None for a row by op.
        calls: executions that were timed.
        seconds: that they took together.
        share: of the time of all nodes.
        bytes: moved by them: operands read and results written, each element once.
        flops: done by them: multiplications and additions of products, else one an element.
        peak_share: time that the machine's peak would need (the longer of bytes and FLOPs), over
            the time taken; None without a peak. It passes 1 where caches beat the memory.
    """

    name: str
    op: str
    shape: tuple[int, ...] | None
    dtype: str | None
    calls: int
    seconds: float
    share: float
    bytes: float
    flops: float
    peak_share: float | None

    @property
    def gb_per_second(self) -> float:
        """Bytes moved per second, in 10^9."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gflop_per_second(self) -> float:
        """FLOPs per second, in 10^9."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The attributes and the two rates."""
        rates = {
            "gb_per_second": self.gb_per_second,
            "gflop_per_second": self.gflop_per_second,
        }
        return asdict(self) | rates


class Profile:
    """Times of the nodes of a Program; printing it shows them by op.

    Attributes:
        runs: that were timed.
        threads: they used.
        peak: the machine's, None when it was not asked for.
        seconds: of all nodes and runs together (copying inputs and results is not in it).
        nodes: a `Cost` for each node that runs something, in running order.
        ops: a `Cost` for each op, the slowest first.
    """

    def __init__(self, records: Sequence[_KeptNode], threads: int, peak: Peak | None) -> None:
        timed = [r for r in records if r["runs"] > 0]
        self.runs = max((r["runs"] for r in timed), default=0)
        self.threads = threads
        self.peak = peak
        self.seconds = sum(r["ns"] for r in timed) * 1e-9
        self.nodes = tuple(self._cost([r], of_node=True) for r in timed)
        by_op: dict[int, list[_KeptNode]] = {}
        for r in timed:
            by_op.setdefault(r["op"], []).append(r)
        rows = (self._cost(group, of_node=False) for group in by_op.values())
        self.ops = tuple(sorted(rows, key=lambda row: -row.seconds))

    def _cost(self, group: list[_KeptNode], of_node: bool) -> Cost:
        seconds = sum(r["ns"] for r in group) * 1e-9
        moved = sum(r["moved_bytes"] * r["runs"] for r in group)
        flops = sum(r["flops"] * r["runs"] for r in group)
        peak_share = None
        if self.peak is not None:
            needed = sum(
                r["runs"]
                * max(
                    r["moved_bytes"] / self.peak.bytes_per_second,
                    r["flops"] / self.peak.flops_per_second,
                )
                for r in group
            )
            peak_share = needed / seconds if seconds else 0.0
        first = group[0]
        return Cost(
            name=first["name"] if of_node else "",
            op=NAMES[first["op"]],
            shape=first["shape"] if of_node else None,
            dtype=DTYPES[first["dtype"]].name if of_node else None,
            calls=sum(r["runs"] for r in group),
            seconds=seconds,
            share=seconds / self.seconds if self.seconds else 0.0,
            bytes=moved,
            flops=flops,
            peak_share=peak_share,
        )

    def table(self, by: str = "op") -> str:
        """The rows as text, the slowest first.

        Args:
            by: "op" or "node".

        Raises:
            ParameterError: another `by`.
        """
        if by not in ("op", "node"):
            raise ParameterError(f"table: by must be 'op' or 'node', got {shown(by)}")
        rows = self.ops if by == "op" else sorted(self.nodes, key=lambda row: -row.seconds)
        head = ["op", "calls", "us/call", "time %", "GB/s", "GFLOP/s", "peak %"]
        cells = [[row.op, *_numbers(row)] for row in rows]
        if by == "node":
            head += ["result", "name"]
            for line, row in zip(cells, rows, strict=True):
                line += [f"{row.shape} {row.dtype}", _printable(row.name)]
        return "\n".join([self._title(), *_aligned([head, *cells])])

    def _title(self) -> str:
        title = f"{self.runs} runs, {self.threads} threads"
        if self.runs:
            title += f", {self.seconds / self.runs * 1e3:.3f} ms a run"
        if self.peak is not None:
            title += (
                f"; peak {self.peak.bytes_per_second / 1e9:.1f} GB/s copied, "
                f"{self.peak.flops_per_second / 1e9:.1f} GFLOP/s"
            )
        return title

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists and numbers, as `json.dumps` takes them."""
        return {
            "runs": self.runs,
            "threads": self.threads,
            "seconds": self.seconds,
            "peak": None if self.peak is None else asdict(self.peak),
            "ops": [row.to_dict() for row in self.ops],
            "nodes": [row.to_dict() for row in self.nodes],
        }

    def __repr__(self) -> str:
        return self.table()


def _numbers(row: Cost) -> list[str]:
    return [
        str(row.calls),
        f"{row.seconds / row.calls * 1e6:.1f}",
        f"{row.share * 100:.1f}",
        f"{row.gb_per_second:.2f}",
        f"{row.gflop_per_second:.2f}",
        "-" if row.peak_share is None else f"{row.peak_share * 100:.1f}",
    ]


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)


def _aligned(rows: list[list[str]]) -> list[str]:
    """Columns of one width: numbers to the right, the other cells to the left."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if 0 < i < 7 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


@dataclass(frozen=True)
class Placement:
    """Where one kept node's memory lies and how long its block is kept.

    Times are positions in `MemoryPlan.nodes`: -1 is before the first, the number of nodes is the
    copying out of the results.

    Attributes:
        id: number of the node in the Graph.
        name: its name, or "".
        op: its op, "input" or "const".
        block: number of the piece of the arena; views, and results that took over an operand's
            memory, have the same one. None for constants, which lie outside the arena.
        offset: of its first element from the arena's start; None for constants.
        bytes: from its first to the end of its last element.
        first: position that first writes the block; None for constants.
        last: last position that touches the block; None for constants.
    """

    id: int
    name: str
    op: str
    block: int | None
    offset: int | None
    bytes: int
    first: int | None
    last: int | None


@dataclass(frozen=True)
class Block:
    """A piece of the arena: `bytes` from `offset` on, in use from position `first` to `last`."""

    offset: int
    bytes: int
    first: int
    last: int


class MemoryPlan:
    """The memory of a Program, as the C planner laid it out.

    Attributes:
        nodes: a `Placement` for each kept node, in running order.
        blocks: the pieces of the arena, by number.
        results: bytes of the arena that hold inputs and results.
        shared: bytes that the phases of one node share.
        scratch: bytes of one thread.
        threads: threads that a run uses.
        arena: all bytes of the arena: results + shared + threads * scratch.
        constants: bytes of tables that ops made at compile time, outside the arena.
        total: arena + constants.
        unplanned: bytes that the blocks would take without sharing memory.
    """

    def __init__(self, records: Sequence[_KeptNode], memory: _Memory, threads: int) -> None:
        self.nodes = tuple(_placement(r) for r in records)
        blocks = {r["block"]: r for r in records if r["block"] >= 0}
        self.blocks = tuple(
            Block(r["block_offset"], r["block_bytes"], r["first"], r["last"])
            for _, r in sorted(blocks.items())
        )
        self.results = memory["results"]
        self.shared = memory["shared"]
        self.scratch = memory["scratch"]
        self.threads = threads
        self.arena = memory["arena"]
        self.constants = memory["constants"]
        self.total = self.arena + self.constants
        self.unplanned = sum(b.bytes for b in self.blocks)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists and numbers, as `json.dumps` takes them."""
        return vars(self) | {
            "nodes": [asdict(n) for n in self.nodes],
            "blocks": [asdict(b) for b in self.blocks],
        }

    def __repr__(self) -> str:
        return (
            f"<MemoryPlan: {self.arena} bytes of arena ({self.results} results, {self.shared} "
            f"shared, {self.threads} x {self.scratch} scratch), {len(self.blocks)} blocks>"
        )


def _placement(r: _KeptNode) -> Placement:
    placed = r["block"] >= 0
    return Placement(
        id=r["id"],
        name=r["name"],
        op=NAMES[r["op"]],
        block=r["block"] if placed else None,
        offset=r["offset"] if placed else None,
        bytes=r["bytes"],
        first=r["first"] if placed else None,
        last=r["last"] if placed else None,
    )
