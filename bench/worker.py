"""One side of side_by_side.py: loads a model once, then answers commands on stdin.

Commands and answers are JSON, a line each. It runs in either interpreter and imports nothing but
numpy until it knows its side. While it waits it blocks in a read. Each answer comes after a pause,
so that the threads of this side have gone to sleep when the other side starts; the processor time
used from there to the next command is reported as `idle`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

PEER_CACHE_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}  # ggml type ids


class PyggmlSide:
    """pyggml.Llama."""

    def __init__(self, job: dict[str, Any]) -> None:
        import pyggml

        self._pyggml = pyggml
        self._llm = pyggml.Llama(
            job["model"],
            n_ctx=job["n_ctx"],
            n_batch=job["n_batch"],
            n_threads=job["threads"],
            type_k=job["type_k"],
            type_v=job["type_v"],
        )

    def facts(self) -> dict[str, Any]:
        """Version, instruction set and the extension that runs."""
        core = self._pyggml._core
        return {
            "name": "pyggml",
            "version": self._pyggml.__version__,
            "isa": self._pyggml.isa(),
            "extension": _short_hash(Path(core.__file__)),
            "threads": self._llm.session.threads,
            "type_k": self._llm.cache.type_k.name,
            "type_v": self._llm.cache.type_v.name,
            "flash_attn": self._llm.session.flash_attn,
        }

    def ids(self, text: str) -> list[int]:
        """The text's token ids."""
        return self._llm.tokenize(text)

    def reset(self) -> None:
        """Empties the context."""
        self._llm.reset()

    def step(self, ids: list[int]) -> int:
        """Evaluates ids and returns the most likely next one."""
        self._llm.eval(ids)
        return int(self._llm.scores[-1].argmax())


class PeerSide:
    """llama_cpp.Llama."""

    def __init__(self, job: dict[str, Any]) -> None:
        import llama_cpp

        self._module = llama_cpp
        self._job = job
        flash = {} if job["flash"] == "default" else {"flash_attn": job["flash"] == "on"}
        self._llm = llama_cpp.Llama(
            job["model"],
            n_ctx=job["n_ctx"],
            n_batch=job["n_batch"],
            n_ubatch=job["n_batch"],
            n_threads=job["threads"],
            n_threads_batch=job["threads"],
            type_k=PEER_CACHE_TYPES[job["type_k"]],
            type_v=PEER_CACHE_TYPES[job["type_v"]],
            verbose=False,
            **flash,
        )

    def facts(self) -> dict[str, Any]:
        """Version and how it was built."""
        llama_cpp, package = self._module, Path(self._module.__file__).parent
        flags = llama_cpp.llama_print_system_info().decode()
        libraries = sorted(package.glob("lib/*ggml-cpu*"))
        record = Path(sys.prefix) / "peer_build.json"
        return {
            "name": "llama-cpp-python",
            "version": llama_cpp.__version__,
            "system_info": flags,
            "wheel_tags": _wheel_tags(package.parent),
            "compiler": _compiler(libraries),
            "library": _short_hash(libraries[0]) if libraries else None,
            "flags_the_cpu_has_and_the_build_not": _unused_flags(flags),
            "build": json.loads(record.read_text()) if record.is_file() else None,
            "threads": self._llm.n_threads,
            "type_k": self._job["type_k"],
            "type_v": self._job["type_v"],
            "flash_attn": int(self._llm.context_params.flash_attn_type) == 1,
            "flash_option": self._job["flash"],
        }

    def ids(self, text: str) -> list[int]:
        """The text's token ids."""
        return list(self._llm.tokenize(text.encode()))

    def reset(self) -> None:
        """Empties the context."""
        self._llm.reset()

    def step(self, ids: list[int]) -> int:
        """Evaluates ids and returns the most likely next one."""
        self._llm.eval(ids)
        logits = self._llm._ctx.get_logits_ith(-1)
        return int(np.ctypeslib.as_array(logits, (self._llm.n_vocab(),)).argmax())


def _short_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _wheel_tags(site: Path) -> list[str]:
    """Tags of the wheel: plain linux_* means that it was built on a machine, not for an index."""
    for file in site.glob("llama_cpp_python-*.dist-info/WHEEL"):
        return re.findall(r"^Tag: (.+)$", file.read_text(), re.M)
    return []


def _compiler(libraries: list[Path]) -> str | None:
    """What the compiler wrote into the library."""
    for path in libraries:
        found = re.search(rb"(?:GCC: \([^)\0]*\) [\d.]+|clang version [\d.]+)", path.read_bytes())
        if found:
            return found[0].decode()
    return None


def _unused_flags(system_info: str) -> list[str] | None:
    """Instruction sets of this machine that the build does without; empty for a native build."""
    info = Path("/proc/cpuinfo")
    if platform.machine() not in ("x86_64", "AMD64") or not info.is_file():
        return None
    line = re.search(r"^flags\s*:(.*)$", info.read_text(), re.M)
    has = set(line[1].split()) if line else set()
    built = set(re.findall(r"(\w+) = 1", system_info))
    names = {
        "AVX": "avx",
        "AVX2": "avx2",
        "FMA": "fma",
        "F16C": "f16c",
        "AVX_VNNI": "avx_vnni",
        "AVX512": "avx512f",
        "AVX512_VBMI": "avx512_vbmi",
        "AVX512_VNNI": "avx512_vnni",
        "AVX512_BF16": "avx512_bf16",
    }
    alias = {"avx512_vbmi": {"avx512vbmi", "avx512_vbmi"}}
    return [n for n, f in names.items() if n not in built and alias.get(f, {f}) & has]


def prefill(side: PyggmlSide | PeerSide, job: dict[str, Any], n: int) -> dict[str, Any]:
    """Times a prompt of n tokens in an empty context, its last logits read."""
    side.reset()
    return timed(side, [job["ids"][:n]])


def decode(side: PyggmlSide | PeerSide, job: dict[str, Any], n: int, depth: int) -> dict[str, Any]:
    """Times n given tokens, one by one, after `depth` tokens of context."""
    side.reset()
    if depth:
        side.step(job["ids"][:depth])
    return timed(side, [[token] for token in job["ids"][depth : depth + n]])


def timed(side: PyggmlSide | PeerSide, steps: list[list[int]]) -> dict[str, Any]:
    """Seconds of these steps, processor seconds of all threads, and the most likely tokens."""
    cpu, started = time.process_time(), time.perf_counter()
    tops = [side.step(ids) for ids in steps]
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "cpu": time.process_time() - cpu, "tops": tops}


class Worker:
    """Answers commands until stdin ends.

    Args:
        kind: "pyggml" or "peer".
        answers: stream for the answers.
    """

    def __init__(self, kind: str, answers: Any) -> None:
        self._make: Any = {"pyggml": PyggmlSide, "peer": PeerSide}[kind]
        self._answers = answers
        self._side: PyggmlSide | PeerSide | None = None
        self._job: dict[str, Any] = {"pause": 0.05}

    def run(self) -> None:
        """The loop."""
        slept_at, used = time.perf_counter(), time.process_time()
        for line in iter(sys.stdin.readline, ""):
            wall, cpu = time.perf_counter() - slept_at, time.process_time() - used
            try:
                answer = self._do(json.loads(line))
            except Exception as e:  # told to the other end, which gives up
                answer = {"error": f"{type(e).__name__}: {e}"}
            answer["idle"] = {"wall": wall, "cpu": cpu}
            time.sleep(self._job["pause"])
            slept_at, used = time.perf_counter(), time.process_time()
            self._answers.write(json.dumps(answer) + "\n")
            self._answers.flush()

    def _do(self, command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "load":
            self._job = command["job"]
            self._side = self._make(self._job)
            return self._side.facts()
        if self._side is None:
            raise RuntimeError("load comes first")
        if command["do"] == "ids":
            return {"ids": self._side.ids(command["text"])}
        if command["do"] == "prompt":
            self._job["ids"] = command["ids"]
            return {}
        if command["do"] == "prefill":
            return prefill(self._side, self._job, command["n"])
        if command["do"] == "decode":
            return decode(self._side, self._job, command["n"], command["depth"])
        raise ValueError(f"unknown command {command['do']!r}")


def main() -> None:
    """Serves the side named by the first argument."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not end up among the answers
    Worker(sys.argv[1], answers).run()


if __name__ == "__main__":
    main()
