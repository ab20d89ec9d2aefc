"""The command line: options and output. What the commands do is in pyggml/tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pyggml.errors import ParameterError
from pyggml.tools import console, pull
from pyggml.tools.console import clean_errors
from pyggml.tools.run import (
    KVScales,
    ModelOptions,
    Report,
    SamplingOptions,
    answer,
    make_report,
    parse_kv_scales,
)

if TYPE_CHECKING:
    from pyggml.llm.model import Llama
    from pyggml.tools.inspect import Summary

app = typer.Typer(
    name="pyggml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_MODEL_PANEL, _SAMPLING_PANEL = "Model", "Sampling"
_TYPES = "f32|f16|bf16|f8_e4m3|q8_0"


def _model(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_MODEL_PANEL, **more)


def _sampling(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SAMPLING_PANEL, **more)


def _kv_scales(text: str) -> KVScales:
    try:
        return parse_kv_scales(text)
    except (ParameterError, OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error)) from None


Model = Annotated[str, typer.Argument(help="A GGUF file, or a known name such as smollm2.")]
Context = Annotated[int, _model("-c", "--n-ctx", help="Tokens of context.", min=1)]
Batch = Annotated[int, _model("-b", "--n-batch", help="Prompt tokens a step.", min=1)]
Threads = Annotated[int | None, _model("-t", "--threads", help="Default: physical cores.", min=1)]
TypeK = Annotated[
    str, _model("-ctk", "--cache-type-k", metavar=_TYPES, help="Dtype of the K cache.")
]
TypeV = Annotated[
    str, _model("-ctv", "--cache-type-v", metavar=_TYPES, help="Dtype of the V cache.")
]
Scales = Annotated[
    Any,
    _model(
        "--kv-scales",
        help="Scales of an f8_e4m3 cache: file, unit, a JSON object by layer, or a file of it.",
        parser=_kv_scales,
        metavar="file|unit|JSON",
    ),
]
Flash = Annotated[bool, _model("--flash-attn/--no-flash-attn", help="Fused attention.")]
Check = Annotated[bool, _model("--check", help="Look for NaN in the weights when loading.")]
Verbose = Annotated[bool, _model("--verbose", help="Print what was loaded.")]
System = Annotated[str | None, typer.Option("--system", help="System message of the chat.")]
Tokens = Annotated[
    int, _sampling("-n", "--max-tokens", help="Tokens an answer; -1: all that fit.", min=-1)
]
Temp = Annotated[float, _sampling("--temp", help="Temperature; 0 takes the likeliest token.")]
TopK = Annotated[int, _sampling("--top-k", help="Keep the k likeliest; 0 keeps all.")]
TopP = Annotated[float, _sampling("--top-p", help="Keep the likeliest of this total probability.")]
MinP = Annotated[float, _sampling("--min-p", help="Drop below this share of the likeliest.")]
Repeat = Annotated[float, _sampling("--repeat-penalty", help="Above 1: repeat less.")]
Seed = Annotated[int | None, _sampling("-s", "--seed", help="Same seed, same text.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from pyggml import __version__
        from pyggml._core import isa

        print(f"pyggml {__version__}, {isa()} kernels")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Language models on CPUs, with 8-bit floats (F8_E4M3) first-class."""


@app.command(name="pull")
def pull_command(
    name: Annotated[str, typer.Argument(help="A known model.")] = pull.DEFAULT,
) -> None:
    """Fetch a known model into the cache folder and print its path."""
    with clean_errors():
        print(_pull(name))


@app.command(name="run")
def run_command(
    model: Model,
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", help="The prompt.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Prompt from a file; - is stdin.")
    ] = None,
    n: Tokens = 128,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask through the model's chat template.")
    ] = False,
    system: System = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    compare_cache: Annotated[
        bool, typer.Option("--compare-cache", help="Also give the size of an F16 cache.")
    ] = False,
    n_ctx: Context = 2048,
    n_batch: Batch = 512,
    threads: Threads = None,
    type_k: TypeK = "f16",
    type_v: TypeV = "f16",
    kv_scales: Scales = "file",
    flash_attn: Flash = True,
    check: Check = False,
    verbose: Verbose = False,
    temperature: Temp = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.05,
    repeat_penalty: Repeat = 1.0,
    seed: Seed = None,
) -> None:
    """Continue a prompt, or answer it with --chat; figures go to stderr."""
    if (prompt is None) == (file is None):
        raise typer.BadParameter("give either -p TEXT or -f FILE")
    if system is not None and not chat:
        raise typer.BadParameter("--system needs --chat")
    options = ModelOptions(n_ctx, n_batch, threads, type_k, type_v, flash_attn, kv_scales, check)
    sampling = SamplingOptions(n, temperature, top_k, top_p, min_p, repeat_penalty, seed)
    with clean_errors():
        text = prompt if file is None else _read_prompt(file)
        path = _resolve(model)
        with _open(options, path, verbose) as llm:
            write = _silent if json_output else console.write_text
            report = make_report(
                llm, options, *answer(llm, text or "", sampling, write, chat=chat, system=system)
            )
        if compare_cache:
            with options.open(path, type_k="f16", type_v="f16") as plain:
                report.f16_cache_bytes = plain.cache_bytes
        _print_report(report, json_output)


@app.command(name="chat")
def chat_command(
    model: Model,
    system: System = None,
    n: Tokens = 512,
    n_ctx: Context = 2048,
    n_batch: Batch = 512,
    threads: Threads = None,
    type_k: TypeK = "f16",
    type_v: TypeV = "f16",
    kv_scales: Scales = "file",
    flash_attn: Flash = True,
    check: Check = False,
    verbose: Verbose = False,
    temperature: Temp = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.05,
    repeat_penalty: Repeat = 1.0,
    seed: Seed = None,
) -> None:
    """Talk with a model; /reset starts over, /exit ends, Ctrl-C stops an answer."""
    from pyggml.tools.chat import HELP, Conversation

    options = ModelOptions(n_ctx, n_batch, threads, type_k, type_v, flash_attn, kv_scales, check)
    sampling = SamplingOptions(n, temperature, top_k, top_p, min_p, repeat_penalty, seed)
    with clean_errors(), _open(options, _resolve(model), verbose) as llm:
        if sys.stdin.isatty():
            _note(HELP)
        Conversation(llm, sampling, system, console.write_text, _note).loop(_read_line)


@app.command(name="inspect")
def inspect_command(
    model: Model,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long values.")] = False,
    tensors: Annotated[
        bool, typer.Option("--tensors/--no-tensors", help="The table of tensors.")
    ] = True,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the metadata and the tensors of a GGUF file."""
    from pyggml.tools.inspect import summarize

    with clean_errors():
        summary = summarize(_resolve(model), full)
        if json_output:
            print(json.dumps(summary.as_dict()))
        else:
            _print_summary(summary, tensors)


def main() -> NoReturn:
    """The `pyggml` command."""
    console.set_up_process()
    try:
        app(prog_name="pyggml")
    except KeyboardInterrupt:  # before a command began
        sys.exit(130)
    sys.exit(0)


def _pull(name: str) -> Path:
    with console.progress_bar() as progress:
        return pull.pull(name, progress)


def _resolve(model: str) -> Path:
    with console.progress_bar() as progress:
        return pull.resolve(model, progress)


def _read_prompt(file: Path) -> str:
    """The text of a file, or of stdin for "-", without its final newline."""
    try:
        if file == Path("-"):
            return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
        return file.expanduser().read_text("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ParameterError(f"{file}: not UTF-8: {error.reason} at {error.start}") from None


def _open(options: ModelOptions, path: Path, verbose: bool) -> Llama:
    llm = options.open(path)
    if verbose:
        console.err().print(llm.load_report(), style="dim")
    return llm


def _silent(piece: str) -> None:
    """Takes the text that --json prints at the end."""


def _note(text: str) -> None:
    console.err().print(text, style="dim")


def _read_line() -> str:
    """A line of the user; EOFError at the end."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line
    import readline  # noqa: F401 - input() then edits lines and has a history

    return input("> ")


def _print_report(report: Report, json_output: bool) -> None:
    if json_output:
        print(report.as_json())
        return
    print(flush=True)
    for line in report.lines():
        _note(line)


def _print_summary(summary: Summary, tensors: bool) -> None:
    from rich.table import Table

    out = console.out()
    out.print(f"{summary.path}: GGUF version {summary.version}, {summary.n_bytes:,} bytes")
    keys = Table("key", "type", "value", title="Metadata", title_justify="left")
    keys.columns[2].overflow = "fold"
    for key in summary.keys:
        keys.add_row(key.name, key.type, key.value)
    out.print(keys)
    if tensors:
        rows = Table("tensor", "type", "shape", title="Tensors", title_justify="left")
        for heading in ("bytes", "offset"):
            rows.add_column(heading, justify="right")
        for row in summary.tensors:
            shape = " x ".join(map(str, row.shape)) or "scalar"
            rows.add_row(row.name, row.type, shape, f"{row.n_bytes:,}", f"{row.offset:,}")
        out.print(rows)
    sums = Table("type", title="Types", title_justify="left")
    for heading in ("tensors", "elements", "bytes"):
        sums.add_column(heading, justify="right")
    for kind in summary.types:
        sums.add_row(kind.type, f"{kind.tensors:,}", f"{kind.elements:,}", f"{kind.n_bytes:,}")
    out.print(sums)
