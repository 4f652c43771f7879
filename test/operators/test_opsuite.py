"""The operator suite must notice what it is there to notice: differences, crashes, hangs, stale exceptions."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from opsuite import exceptions, verdict
from opsuite.cases import Case, all_cases
from opsuite.compare import Mismatch, Rule, assert_no_worse, assert_same, assert_same_aliasing
from opsuite.pool import Runner
from opsuite.transfer import Transfer

_CPU = Rule("cpu")


def _kind(expected: Any, actual: Any, rule: Rule = _CPU) -> str:
    with pytest.raises(Mismatch) as caught:
        assert_same(expected, actual, rule)
    return caught.value.kind


def test_equal_results_pass() -> None:
    nan = torch.tensor([float("nan"), -0.0, 1.0])
    assert_same((nan, [3, "x"]), (nan.clone(), [3, "x"]), _CPU)


@pytest.mark.parametrize(
    ("kind", "actual"),
    [
        ("dtype", torch.zeros(2, 3, dtype=torch.float64)),
        ("shape", torch.zeros(3, 2)),
        ("stride", torch.zeros(3, 2).t()),
        ("storage_offset", torch.zeros(7)[1:].view(2, 3)),
        ("value", torch.full((2, 3), 1e-45)),
        ("value", torch.full((2, 3), -0.0)),
        ("layout", torch.zeros(2, 3).to_sparse()),
        ("structure", (torch.zeros(2, 3),)),
        ("neg", torch._neg_view(torch.zeros(2, 3))),
        ("type", 0.0),
    ],
)
def test_differences_are_named(kind: str, actual: Any) -> None:
    assert _kind(torch.zeros(2, 3), actual) == kind


def test_wrong_device_is_a_difference() -> None:
    assert _kind(torch.zeros(1), torch.zeros(1), Rule("npu")) == "device"


def test_values_and_tolerance_follow_the_rule() -> None:
    near = torch.tensor([1.0]), torch.tensor([1.001])
    assert _kind(*near) == "value"
    assert_same(*near, Rule("cpu", rtol=1e-2))
    assert_same(*near, Rule("cpu", values=False))


def _kind_beside_float64(expected: torch.Tensor, actual: torch.Tensor, exact: list[float]) -> str:
    with pytest.raises(Mismatch) as caught:
        assert_no_worse(expected, actual, torch.tensor(exact, dtype=torch.float64), _CPU)
    return caught.value.kind


def test_own_kernels_may_be_off_by_what_the_cpu_is_off() -> None:
    exact, inf, nan = [1.0, 100.0, 1e300, 2.0], float("inf"), float("nan")
    cpu = torch.tensor([1.01, 100.0, inf, 2.0])
    truth = torch.tensor(exact, dtype=torch.float64)
    assert_no_worse(cpu, torch.tensor([0.99001, 100.0099, inf, 2.0]), truth, _CPU)
    assert_no_worse(truth, truth, truth, _CPU)
    for wrong in ([1.02, 100.0, inf, 2.0], [1.01, nan, inf, 2.0], [1.01, 100.0, 3.0, 2.0], [1.0, 100.0, nan, 2.0]):
        assert _kind_beside_float64(cpu, torch.tensor(wrong), exact) == "value"
    assert _kind_beside_float64(cpu, cpu.double(), exact) == "dtype"
    two_ulps = torch.tensor([1.0 + 3 * torch.finfo(torch.float32).eps])
    assert _kind_beside_float64(torch.tensor([1.0]), two_ulps, [1.0]) == "value"


def test_sparse_differences_are_seen() -> None:
    eye = torch.eye(3)
    assert _kind(eye.to_sparse(), (2 * eye).to_sparse()) == "value"
    assert _kind(eye.to_sparse_csr(), (2 * eye).to_sparse_csr()) == "value"
    assert _kind(eye.to_sparse().coalesce(), torch.sparse_coo_tensor(*_parts(eye), (3, 3))) == "coalesced"


def _parts(dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return dense.to_sparse().indices(), dense.to_sparse().values()


def test_a_copy_is_no_view() -> None:
    base = torch.zeros(4)
    assert_same_aliasing(base[1:], base, base[1:], base)
    with pytest.raises(Mismatch, match="alias"):
        assert_same_aliasing(base[1:], base, base[1:].clone(), base)


def test_transfer_keeps_layout_and_aliasing() -> None:
    base = torch.arange(12.0)
    left, right = base[2:8].view(2, 3).t(), base[1::2]
    moved_left, moved_right, again = Transfer("cpu")((left, right, left))
    assert moved_left is again
    assert torch.equal(moved_left, left)
    assert (moved_left.stride(), moved_left.storage_offset()) == (left.stride(), left.storage_offset())
    assert moved_left.untyped_storage().nbytes() == base.untyped_storage().nbytes()
    moved_left.zero_()
    assert moved_right.tolist() == [1.0, 0.0, 0.0, 0.0, 9.0, 11.0]
    assert left.sum() == 27


def test_transfer_keeps_lazy_bits() -> None:
    value = torch.tensor([1 + 2j]).conj()
    moved = Transfer("cpu")(value)
    assert moved.is_conj()
    assert torch.equal(moved, value)
    negative = Transfer("cpu")(torch._neg_view(torch.ones(2)))
    assert negative.is_neg()
    assert negative.tolist() == [-1, -1]


def test_case_names_round_trip() -> None:
    every = all_cases()
    assert len(every) > 6000
    assert [Case.parse(str(case)) for case in every[:50]] == every[:50]
    with pytest.raises(ValueError, match="op|variant|dtype"):
        Case.parse("add")


def test_every_listed_exception_names_a_case_and_a_reason() -> None:
    known = {(case.op, case.variant, case.dtype) for case in all_cases()}
    listed = [*exceptions.tables().exceptions, *exceptions.tables().tolerances]
    assert [key for key in listed if (key[0], key[1], key[3]) not in known] == []
    assert exceptions.tables().own_kernels <= {(op, dtype) for op, _, dtype in known}


def test_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("add", "", "float32")
    failing = {"check": "forward", "status": "fail", "kind": "value", "detail": "", "samples": 1}
    passing = {**failing, "status": "pass"}
    assert verdict.judge("npu", case, failing) == verdict.FAILED
    assert verdict.judge("npu", case, passing) == verdict.PASSED
    monkeypatch.setattr(verdict, "reason_for", lambda case, check: "known")
    assert verdict.judge("npu", case, failing) == verdict.KNOWN
    assert verdict.judge("npu", case, passing) == verdict.STALE
    assert verdict.judge("cpu", case, passing) == verdict.PASSED
    assert verdict.pass_rate({"passed": 3, "known": 1, "n/a": 9}) == 75.0


def test_a_lost_worker_is_a_failure_of_its_check_only() -> None:
    runner = Runner("cpu", check_seconds=60)
    try:
        assert [outcome["status"] for outcome in runner.run("add||float32", ["forward"])] == ["pass"]
        os.kill(runner.process_id, signal.SIGKILL)
        first, second = runner.run("add||float32", ["forward", "view"])
        assert (first["status"], first["kind"]) == ("fail", "crash")
        assert "SIGKILL" in first["detail"]
        assert second["status"] == "n/a"
    finally:
        runner.close()


def test_a_hanging_check_times_out() -> None:
    runner = Runner("cpu", check_seconds=60)
    try:
        runner.run("add||float32", ["forward"])
        os.kill(runner.process_id, signal.SIGSTOP)
        runner.check_seconds = 0.5
        (outcome,) = runner.run("add||float32", ["forward"])
        assert (outcome["status"], outcome["kind"]) == ("fail", "timeout")
    finally:
        runner.close()


def test_an_unknown_case_is_a_failure_not_an_end() -> None:
    runner = Runner("cpu")
    try:
        assert runner.run("add||nonsense", ["forward"])[0]["kind"] == "harness"
        assert runner.run("add||float32", ["forward"])[0]["status"] == "pass"
    finally:
        runner.close()
