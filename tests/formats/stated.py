"""The table of docs/dtypes.md, and what pyggml.dtypes states about the error of each dtype.

PYTHONPATH=.:tests python -m formats.stated    writes the table into docs/dtypes.md, and prints what
                                               pyggml/dtypes.py is to state
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import pyggml as pg
from oracles import copy as oracle
from pyggml import dtypes

_ROW = re.compile(r"^    (\w+) +([\d.]+) +([\d.]+)(?: +decoded only)?$", re.MULTILINE)
_STATED = _ROW.findall(dtypes.__doc__ or "")

BITS = {name: float(bits) for name, bits, _ in _STATED}
RMS = {name: float(rms) for name, _, rms in _STATED}

PAGE = Path(__file__).parents[2] / "docs/dtypes.md"
HEAD = "| name | GGUF id | block | bytes | bits a value | decode | encode | dot | RMS error |"


def gaussian(*shape: int) -> np.ndarray:
    """Standard normal values."""
    return np.random.default_rng(20).standard_normal(shape).astype(np.float32)


def measured(name: str) -> float:
    """RMS error of normal values stored in a dtype; of what is only decoded, by the oracle."""
    x, kind = gaussian(2000, 256), pg.dtype(name)
    raw = oracle.encode(x, name) if kind.is_fixed else pg.tensor(x, dtype=kind).raw()
    back = pg.Tensor.from_raw(raw, x.shape, kind).dequantize()
    return float(np.sqrt(np.mean((back.astype(np.float64) - x) ** 2)))


def table() -> list[str]:
    """Lines of the table, in the order of the C table."""
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    slots = set(pg._core.kernel_slots())
    for d in dtypes.DTYPES:
        cells = [
            d.name,
            "" if d.gguf_id is None else d.gguf_id,
            d.block,
            d.itemsize,
            f"{8 * d.itemsize / d.block:g}",
        ]
        for slot in ("to_f32", "from_f32", "dot"):
            cells.append("yes" if f"{slot}_{d.name}" in slots else "no")
        cells.append(f"{measured(d.name):.3g}" if d.is_float else "")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def line(name: str) -> str:
    """What the docstring of pyggml.dtypes states about a dtype."""
    d = pg.dtype(name)
    only = "   decoded only" if d.is_fixed else ""
    bits = f"{8 * d.itemsize / d.block:g}"
    return f"    {name:<8} {bits:<7} {measured(name):<8.3g}{only}".rstrip()


def main() -> None:
    """Writes the table in place of the old one."""
    text = PAGE.read_text()
    before, _, rest = text.partition(HEAD)
    _, _, after = rest.partition("\n\n")
    PAGE.write_text(before + "\n".join(table()) + "\n\n" + after)
    print("\n".join(line(d.name) for d in dtypes.DTYPES if d.is_float))


if __name__ == "__main__":
    main()
