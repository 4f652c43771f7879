"""Options of the operator suite under pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from opsuite.pool import Runner


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """One worker process for the whole session; ``CANN_TEST_OPERATOR_DEVICE=cpu`` tests the suite itself."""
    shared = Runner(os.environ.get("CANN_TEST_OPERATOR_DEVICE", "npu"))
    yield shared
    shared.close()
