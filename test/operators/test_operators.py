"""The operator suite in CI: the hot operators in float32, and a sample of all other cases that changes every day.

``CANN_TEST_OPERATOR_SEED`` repeats the sample of a day (the seed is part of each test's name);
``CANN_TEST_OPERATOR_SAMPLE`` is its size. The full sweep is ``python test/operators/sweep.py``.
"""

from __future__ import annotations

import datetime
import os
import random

import pytest
from opsuite import verdict
from opsuite.cases import Case, all_cases
from opsuite.checks import CHECKS
from opsuite.hot import hot_cases
from opsuite.pool import Runner

_SEED = int(os.environ.get("CANN_TEST_OPERATOR_SEED") or datetime.date.today().toordinal())
_SAMPLE = int(os.environ.get("CANN_TEST_OPERATOR_SAMPLE", "150"))


def _sample() -> list[Case]:
    others = sorted(set(all_cases()) - set(hot_cases()))
    return random.Random(_SEED).sample(others, min(_SAMPLE, len(others)))


def _assert_as_expected(runner: Runner, case: Case) -> None:
    outcomes = runner.run(str(case), list(CHECKS))
    unexpected = [
        f"{outcome['check']}: {judged} {outcome['kind']} {outcome['detail']}"
        for outcome in outcomes
        if (judged := verdict.judge(runner.device, case, outcome)) in (verdict.FAILED, verdict.STALE)
    ]
    assert not unexpected, "\n".join(unexpected)
    assert [outcome["check"] for outcome in outcomes] == list(CHECKS)


@pytest.mark.parametrize("case", hot_cases(), ids=str)
def test_hot_operator(runner: Runner, case: Case) -> None:
    _assert_as_expected(runner, case)


@pytest.mark.parametrize("case", _sample(), ids=lambda case: f"seed{_SEED}-{case}")
def test_sampled_operator(runner: Runner, case: Case) -> None:
    _assert_as_expected(runner, case)
