"""Every published operator exists with its schema, and works or refuses by name; docs/operators.md says which."""

import coverage
import pytest
import torch

NAMES = sorted(coverage.PUBLISHED)


def test_all_are_defined_with_the_published_schema():
    different = {}
    for name in NAMES:
        op = coverage.overload(name)
        if op is None:
            different[name] = "not defined"
            continue
        published = coverage.PUBLISHED[name]["schema"]
        if "__torch__" in published:
            continue  # its classes are only known to torch_npu; the argument has type Any here
        want = torch._C.parse_schema(published)
        have = op._schema
        arguments = lambda s: [(a.name, str(a.type), a.kwarg_only, a.default_value) for a in s.arguments]  # noqa: E731
        if arguments(want) != arguments(have) or [str(r.type) for r in want.returns] != [str(r.type) for r in have.returns]:
            different[name] = f"{have} instead of {published}"
    assert different == {}


def test_the_training_core_works():
    assert [n for n in NAMES if coverage.PUBLISHED[n]["tier"] == 1 and coverage.refuses(n)] == []


@pytest.mark.parametrize("name", [n for n in NAMES if coverage.overload(n) is not None and coverage.refuses(n)])
def test_a_refusal_names_the_operator_and_its_need(name):
    assert len(coverage.need_of(name)) > 10


def test_differentiable_operators_have_gradients():
    """As published: an operator with differentiable arguments has a derivative, others and out= forms have none."""
    wrong = []
    for name in NAMES:
        if coverage.refuses(name) or name.endswith(".out"):
            continue
        key = coverage.overload(name).name()
        has = torch._C._dispatch_has_kernel_for_dispatch_key(key, "AutogradPrivateUse1")
        if has != bool(coverage.PUBLISHED[name]["differentiable"]):
            wrong.append(name)
    assert wrong == []


def test_every_working_operator_has_a_shape_function():
    missing = [
        n for n in NAMES
        if not coverage.refuses(n) and coverage.overload(n).name() not in coverage.COMPOSITES
        and not torch._C._dispatch_has_kernel_for_dispatch_key(coverage.overload(n).name(), "Meta")
    ]  # fmt: skip
    assert missing == []


def test_the_document_is_current():
    assert coverage.DOCUMENT.read_text(encoding="utf-8") == coverage.document(), (
        "run: python test/npu_ops/coverage.py --write"
    )
