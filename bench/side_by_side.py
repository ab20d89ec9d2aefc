"""pyggml beside llama-cpp-python: the same file, threads and token ids, in interleaved runs.

    python bench/side_by_side.py --make-peer peer-venv          # once; compiles for some minutes
    python bench/side_by_side.py --peer-python peer-venv/bin/python --json report.json

Two worker processes load the model once. Then they take turns, A B A B ...: while one works, the
other sleeps (that is measured and reported). Both are fed the same ids, one fixed text, so both do
the same work, and both find the most likely next token after each step; these are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from worker import PEER_CACHE_TYPES

PEER = "llama-cpp-python==0.3.36"
SIDES = ("pyggml", "peer")
IDLE_LIMIT = 0.02  # of one core, while the other side works
BUSY_LIMIT = 0.85  # of the threads: with less processor time than that, something else took it
AGREE_LIMIT = 0.9  # of the most likely tokens; the two round activations differently
TEXT = (
    "The sea covers most of the planet, and nearly all of its life depends on light that never "
    "reaches the bottom. Near the surface, tiny plants turn carbon dioxide and water into sugar. "
    "Small animals eat them, fish eat the animals, and birds eat the fish. What is not eaten sinks "
    "slowly, for weeks, and feeds a world in the dark. Sailors once believed that nothing could "
    "live there, because of the cold and the weight of the water. When the first nets came up "
    "from four kilometres, they were full of worms, sponges and pale crabs without eyes. Every "
    "expedition since has found kinds that nobody had described before. "
)


class BenchError(Exception):
    """The comparison cannot be made, or its results cannot be trusted."""


class Side:
    """One worker process.

    Args:
        kind: "pyggml" or "peer".
        python: its interpreter.
    """

    def __init__(self, kind: str, python: str) -> None:
        self.kind = kind
        self.idle = {"wall": 0.0, "cpu": 0.0}
        script = Path(__file__).with_name("worker.py")
        self._process = subprocess.Popen(
            [python, str(script), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BenchError(f"{self.kind}: the worker ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        idle = answer.pop("idle")
        if do in ("prefill", "decode"):
            for key in self.idle:
                self.idle[key] += idle[key]
        if "error" in answer:
            raise BenchError(f"{self.kind}: {do}: {answer['error']}")
        return answer

    @property
    def idle_share(self) -> float:
        """Cores used while it had nothing to do, 0 when asleep."""
        return self.idle["cpu"] / self.idle["wall"] if self.idle["wall"] else 0.0

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Phase:
    """What is timed: n tokens at once, or one by one after `depth` others."""

    name: str
    n: int
    depth: int
    rates: dict[str, list[float]] = field(default_factory=lambda: {s: [] for s in SIDES})
    cores: dict[str, list[float]] = field(default_factory=lambda: {s: [] for s in SIDES})
    tops: dict[str, list[int]] = field(default_factory=dict)
    unequal: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))

    def run(self, side: Side, record: bool) -> None:
        """Runs it once on a side."""
        more = {"depth": self.depth} if self.name == "decode" else {}
        answer = side.ask(self.name, n=self.n, **more)
        first = self.tops.setdefault(side.kind, answer["tops"])
        self.unequal[side.kind] += answer["tops"] != first
        if record:
            self.rates[side.kind].append(self.n / answer["seconds"])
            self.cores[side.kind].append(answer["cpu"] / answer["seconds"])

    def report(self) -> dict[str, Any]:
        """Rates, their spread, and the ratios pyggml / peer."""
        ours, theirs = self.rates["pyggml"], self.rates["peer"]
        same = sum(a == b for a, b in zip(self.tops["pyggml"], self.tops["peer"], strict=True))
        paired = [a / b for a, b in zip(ours, theirs, strict=True)]
        return {
            "tokens": self.n,
            "depth": self.depth,
            "pyggml": spread(ours),
            "peer": spread(theirs),
            "cores_used": {s: round(statistics.median(c), 3) for s, c in self.cores.items()},
            "ratio_of_medians": round(statistics.median(ours) / statistics.median(theirs), 4),
            "median_of_paired_ratios": round(statistics.median(paired), 4),
            "paired_ratios": [round(r, 4) for r in paired],
            "same_top_token": same,
            "top_tokens": len(self.tops["peer"]),
            "runs_with_other_top_tokens_than_the_first": self.unequal,
        }


def spread(rates: list[float]) -> dict[str, Any]:
    """Every run's tokens per second, and their order statistics."""
    low, _, high = (
        statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
    )
    return {
        "median": round(statistics.median(rates), 2),
        "min": round(min(rates), 2),
        "max": round(max(rates), 2),
        "iqr": round(high - low, 2),
        "tok_s": [round(r, 2) for r in rates],
    }


def make_peer(folder: Path) -> str:
    """A virtual environment with the peer, compiled here by pip with its default flags.

    CMAKE_ARGS of the environment are passed on by pip; they are recorded for the report.
    """
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-binary=llama-cpp-python", PEER], check=True)
    names = ("CMAKE_ARGS", "CFLAGS", "CXXFLAGS", "CC", "CXX")
    record = {n: os.environ[n] for n in names if n in os.environ}
    (folder / "peer_build.json").write_text(json.dumps({"from": PEER, "environment": record}))
    return str(python)


def make_job(args: argparse.Namespace, model: Path) -> dict[str, Any]:
    """What both sides load, cache types aside."""
    from pyggml import _core

    longest = max(args.prefill, args.depth + args.decode)
    return {
        "model": str(model),
        "threads": args.threads or _core.default_threads(),
        "n_ctx": -(-longest // 256) * 256,
        "n_batch": args.prefill,
        "pause": args.pause / 1000,
        "flash": args.peer_flash,
    }


def load(sides: list[Side], job: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Loads both models, gives them the same ids and has them answer the same prompt."""
    types = {
        "pyggml": (args.type_k, args.type_v),
        "peer": tuple(
            own or (t if t in PEER_CACHE_TYPES else "f16")
            for own, t in ((args.peer_type_k, args.type_k), (args.peer_type_v, args.type_v))
        ),
    }
    facts = {}
    for side in sides:
        k, v = types[side.kind]
        facts[side.kind] = side.ask("load", job={**job, "type_k": k, "type_v": v})
    n = max(args.prefill, args.depth + args.decode)
    base = sides[0].ask("ids", text=TEXT)["ids"]
    facts["same_tokenization"] = base == sides[1].ask("ids", text=TEXT)["ids"]
    ids = (base * (n // len(base) + 1))[:n]
    for side in sides:
        side.ask("prompt", ids=ids)
    prompt = len(base) if len(base) < args.prefill else args.prefill
    tops = {side.kind: side.ask("prefill", n=prompt)["tops"][0] for side in sides}
    facts["prompt"] = {"tokens": prompt, "top": tops, "same": len(set(tops.values())) == 1}
    return facts


def compare(sides: list[Side], phases: list[Phase], runs: int) -> None:
    """One round to warm up, then `runs` rounds that count; the sides alternate within each."""
    for phase in phases:
        for r in range(runs + 1):
            for side in sides:
                phase.run(side, record=r > 0)
            print(f"\r{phase.name}: run {r} of {runs} ", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)


def check(report: dict[str, Any]) -> list[str]:
    """What makes the results doubtful; empty when nothing does."""
    found = []
    if not report["prompt"]["same"]:
        found.append(f"the sides continue the prompt differently: {report['prompt']['top']}")
    same = sum(report[p]["same_top_token"] for p in ("prefill", "decode"))
    total = sum(report[p]["top_tokens"] for p in ("prefill", "decode"))
    if same < AGREE_LIMIT * total:
        found.append(f"only {same} of {total} most likely tokens agree")
    for name, share in report["idle_cores"].items():
        if share > IDLE_LIMIT:
            found.append(f"{name} used {share:.2f} of a core while it had to sleep")
    for phase in ("prefill", "decode"):
        for name, cores in report[phase]["cores_used"].items():
            if cores < BUSY_LIMIT * report["threads"]:
                found.append(
                    f"{phase}: {name} got {cores:.2f} cores for {report['threads']} threads: is "
                    "the machine busy with something else?"
                )
        changed = report[phase]["runs_with_other_top_tokens_than_the_first"]["pyggml"]
        if changed:
            found.append(f"{phase}: pyggml gave other tokens in {changed} runs")
    return found


def table(report: dict[str, Any]) -> str:
    """The report, readable."""
    m, ours, peer = report["machine"], report["pyggml"], report["peer"]
    tree = report["tree"]
    lines = [
        f"{m['date']}  {m['cpu']}, {m['usable_cpus']} CPUs, {m['kernel']}",
        f"cpu flags   {' '.join(m['cpu_flags'])}",
        f"file        {report['file']['name']}  sha256 {report['file']['sha256']}",
        f"threads     {report['threads']}, n_ctx {report['n_ctx']}, batch {report['n_batch']}",
        f"pyggml      {ours['version']} {ours['isa']}, commit {tree['commit']}"
        f" + {tree['changed_files']} changed files, cache {ours['type_k']}/{ours['type_v']}",
        f"peer        {peer['name']} {peer['version']}, cache {peer['type_k']}/{peer['type_v']}, "
        f"flash_attn {peer['flash_attn']} ({peer['flash_option']}), {peer['compiler']}, "
        f"{' '.join(peer['wheel_tags'])}",
        f"peer build  {peer['system_info']}",
        f"            CPU features it does without: {peer['flags_the_cpu_has_and_the_build_not']}",
        f"load        {report['load_before']} before, {report['load_after']} after",
        "idle cores  " + ", ".join(f"{k} {v:.4f}" for k, v in report["idle_cores"].items()),
        f"prompt      next token {report['prompt']['top']}, "
        f"same ids from the same text: {report['same_tokenization']}",
        "",
        f"{'tok/s':<16}{'median':>10}{'min':>10}{'max':>10}{'IQR':>10}{'cores':>8}{'runs':>6}",
    ]
    for name in ("prefill", "decode"):
        phase = report[name]
        for side in SIDES:
            s = phase[side]
            numbers = "".join(f"{s[k]:>10.2f}" for k in ("median", "min", "max", "iqr"))
            cores = f"{phase['cores_used'][side]:>8.2f}"
            lines.append(f"{name + ' ' + side:<16}{numbers}{cores}{len(s['tok_s']):>6}")
        lines.append(
            f"  {phase['tokens']} tokens at depth {phase['depth']}: pyggml / peer "
            f"{phase['ratio_of_medians']:.3f} (medians), "
            f"{phase['median_of_paired_ratios']:.3f} (median of pairs); "
            f"same top token {phase['same_top_token']} of {phase['top_tokens']}"
        )
    return "\n".join(lines + [f"DOUBT       {x}" for x in report["doubts"]])


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(description="Compare pyggml with llama-cpp-python.")
    p.add_argument("--peer-python", help="interpreter that has the peer")
    p.add_argument("--make-peer", type=Path, metavar="DIR", help=f"make a venv with {PEER} first")
    p.add_argument("--model", default="smollm2", help="a GGUF file or a known name")
    p.add_argument("--threads", type=int, help="of both sides (default: the physical cores)")
    p.add_argument("--runs", type=int, default=11, help="runs of each side and phase")
    p.add_argument("--prefill", type=int, default=512, help="tokens, in one batch")
    p.add_argument("--decode", type=int, default=128, help="tokens, one by one")
    p.add_argument("--depth", type=int, default=0, help="tokens in the cache before them")
    p.add_argument("--type-k", default="f16", help="cached keys of both sides")
    p.add_argument("--type-v", default="f16", help="cached values of both sides")
    kinds, told = list(PEER_CACHE_TYPES), "(default: the same, f16 where the peer has it not)"
    p.add_argument("--peer-type-k", choices=kinds, help=f"cached keys of the peer {told}")
    p.add_argument("--peer-type-v", choices=kinds, help=f"cached values of the peer {told}")
    p.add_argument("--peer-flash", choices=("default", "on", "off"), default="default")
    p.add_argument("--pause", type=float, default=50, help="milliseconds between two runs")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    args = p.parse_args(argv)
    if args.peer_python is None and args.make_peer is None:
        p.error("the peer is missing: give --peer-python PATH or --make-peer DIR")
    if min(args.runs, args.prefill, args.decode) < 1 or args.depth < 0:
        p.error("--runs, --prefill and --decode start at 1, --depth at 0")
    return args


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The whole comparison."""
    from pyggml.tools.pull import resolve

    peer = make_peer(args.make_peer) if args.make_peer else args.peer_python
    model = resolve(args.model).resolve()
    job = make_job(args, model)
    report: dict[str, Any] = {
        "machine": machine.facts(),
        "tree": machine.commit(),
        "file": {"name": model.name, "sha256": machine.sha256(model)},
        **{k: job[k] for k in ("threads", "n_ctx", "n_batch")},
        "pause_ms": args.pause,
        "load_before": machine.load_average(),
    }
    phases = [Phase("prefill", args.prefill, 0), Phase("decode", args.decode, args.depth)]
    sides: list[Side] = []
    try:
        for kind, python in zip(SIDES, (sys.executable, peer), strict=True):
            sides.append(Side(kind, python))
        report |= load(sides, job, args)
        compare(sides, phases, args.runs)
    finally:
        for side in sides:
            side.close()
    report["load_after"] = machine.load_average()
    report["idle_cores"] = {s.kind: round(s.idle_share, 5) for s in sides}
    report |= {phase.name: phase.report() for phase in phases}
    report["doubts"] = check(report)
    return report


def main(argv: list[str] | None = None) -> int:
    """Prints the report; 1 when its results are doubtful, 2 when there are none."""
    args = parse(argv)
    try:
        report = measure(args)
    except (BenchError, OSError, subprocess.CalledProcessError) as e:
        print(f"side_by_side: {e}", file=sys.stderr)
        return 2
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    return 1 if report["doubts"] else 0


if __name__ == "__main__":
    sys.exit(main())
