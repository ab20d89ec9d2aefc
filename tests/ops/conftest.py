"""What holds for every test of ops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ops import check


@pytest.fixture(autouse=True)
def guards() -> Iterator[None]:
    """The bytes around every guarded Tensor are at the end of the test what they were."""
    check.buffers.clear()
    yield
    assert all(map(check.is_whole, check.buffers)), "something wrote beside a Tensor"
