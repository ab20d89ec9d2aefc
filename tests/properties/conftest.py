"""Hypothesis: the same examples in every CI run, fresh ones elsewhere; never a time limit.

PYGGML_EXAMPLES=2000 asks for more of them than the usual 100 a test.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "max_examples": int(os.environ.get("PYGGML_EXAMPLES", "100")),
}
settings.register_profile("ci", derandomize=True, database=None, **COMMON)
settings.register_profile("local", **COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "local")
