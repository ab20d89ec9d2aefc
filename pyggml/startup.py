"""What is known before the rest of the package is imported."""

from __future__ import annotations

import sys
from itertools import pairwise


def is_command() -> bool:
    """The running import is the start of the `pyggml` command, or of `python -m pyggml`."""
    started = sys.argv[0] if sys.argv else ""
    if started != "-m":  # what runpy puts there while it looks for the module
        return started.rsplit("/", 1)[-1] == "pyggml"
    return "-mpyggml" in sys.orig_argv or ("-m", "pyggml") in pairwise(sys.orig_argv)
