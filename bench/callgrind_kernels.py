"""Instructions of every kernel slot, generic against the better sets, counted by callgrind.

    python bench/callgrind_kernels.py            prints the table of docs/kernels.md

Compiles callgrind_kernels.c with the flags of setup.py, runs it under valgrind and reads the
inclusive cost of the functions `<slot>__<isa>`. Counts do not depend on the machine's load; they
say how much work a kernel does, not how fast it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent
CSRC = BENCH.parent / "csrc"
FLAGS = ["-O2", "-std=c11", "-ffp-contract=off", f"-I{CSRC}"]
# encoded by the scalar code of csrc/formats in every set
SCALAR = {f"from_f32_{name}" for name in ("iq4_nl", "mxfp4", "q4_k", "q5_k", "q6_k")}
LIMIT = 0.25  # a set that needs more than a quarter of generic's instructions is not worth a slot


def slots() -> list[str]:
    """Rows of the kernel table."""
    table = (CSRC / "kernels/kernel_table.inc").read_text()
    return re.findall(r"^PYG_KERNEL\((\w+)", table, re.MULTILINE)


def count(folder: Path) -> dict[str, dict[str, int]]:
    """Instructions of one call: set -> slot -> count."""
    program, out = folder / "kernels", folder / "callgrind.out"
    sources = [*CSRC.glob("kernels/*.c"), *CSRC.glob("formats/*.c")]
    sources += [CSRC / "core/status.c", CSRC / "core/dtype.c", BENCH / "callgrind_kernels.c"]
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *FLAGS, *map(str, sources), "-lm", "-o", str(program)], check=True)
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program)]
    subprocess.run(tool, check=True, capture_output=True)
    annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(out)]
    text = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, int]] = {}
    line = re.compile(r"^\s*([\d,]+) .*:(\w+?)__([a-z0-9]+)\b", re.MULTILINE)
    for number, slot, isa in line.findall(text):
        found.setdefault(isa, {}).setdefault(slot, int(number.replace(",", "")))
    return found


def main() -> int:
    """Prints the table; 1 when a slot is above the limit."""
    with tempfile.TemporaryDirectory() as folder:
        counts = count(Path(folder))
    generic = counts.pop("generic")
    worst = 0.0
    print("| slot | generic | " + " | ".join(f"{isa} | ratio" for isa in counts) + " |")
    print("|---" * (2 + 2 * len(counts)) + "|")
    for slot in slots():
        cells = [slot, str(generic[slot])]
        for isa in counts:
            ratio = counts[isa][slot] / generic[slot]
            worst = max(worst, 0 if slot in SCALAR else ratio)
            cells += [str(counts[isa][slot]), f"{ratio:.3f}"]
        print("| " + " | ".join(cells) + " |")
    print(f"\nLargest ratio {worst:.3f}, limit {LIMIT}.")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
