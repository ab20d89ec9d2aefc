"""Fixtures of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyggml.tools.pull import DEFAULT, resolve


@pytest.fixture(scope="session")
def default_model() -> Path:
    """Path of the default model; pulled when missing."""
    return resolve(DEFAULT)
