"""Fixtures that several folders share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from llm.tiny_model import make_tiny_model
from pyggml.tools.pull import DEFAULT, resolve

# Python leaves SIGINT ignored where a parent did (nohup, a shell's `&`), and so would the processes
# that tests start and stop with it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def default_model() -> Path:
    """Path of the default model, SmolLM2-135M-Instruct Q4_1; pulled when missing."""
    return resolve(DEFAULT)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a tiny llama model with f32 weights: `make_tiny_model` without options."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
