"""Every case against its reference: values, gradients, and shapes without values."""

import pytest
import torch
from cases import as_tuple, assert_matches, cast, to_npu
from table import TABLE
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_map

CASES = TABLE.cases


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_values(case):
    for dtype in (*case.dtypes, torch.float64):
        positional, keyword = cast(case.make(), dtype)
        expected = as_tuple(case.reference(*cast(positional, torch.float64), **cast(keyword, torch.float64)))
        npu_args, npu_kwargs = to_npu((positional, keyword))
        actual = as_tuple(case.call(*npu_args, **npu_kwargs))
        for got, want in zip(actual, expected, strict=True):
            if want is not None:
                assert_matches(got, want, case.factor)


@pytest.mark.parametrize("case", [c for c in CASES if c.grad], ids=lambda c: c.id)
def test_gradients(case):
    positional, keyword = to_npu(case.make())
    if any(torch.is_tensor(positional[i]) and positional[i].numel() == 0 for i in case.grad):
        return
    leaves = [positional[i].detach().requires_grad_() for i in case.grad]

    def call(*leaves):
        full = list(positional)
        for i, leaf in zip(case.grad, leaves, strict=True):
            full[i] = leaf
        results = as_tuple(case.call(*full, **keyword))
        return tuple(results[i] for i in case.outputs)

    assert torch.autograd.gradcheck(call, leaves)


def described(result):
    return [None if t is None else (tuple(t.shape), t.dtype, t.device.type) if torch.is_tensor(t) else type(t) for t in as_tuple(result)]


@pytest.mark.parametrize("case", [c for c in CASES if c.fake], ids=lambda c: c.id)
def test_shapes_without_values(case):
    positional, keyword = to_npu(cast(case.make(), torch.float32))
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fake_args, fake_kwargs = tree_map(lambda t: mode.from_tensor(t) if torch.is_tensor(t) else t, (positional, keyword))
        fake = described(case.call(*fake_args, **fake_kwargs))
    assert fake == described(case.call(*positional, **keyword))


def test_batch_norm_updates_running_statistics():
    """Two cards with half of the batch each give what one with all of it does."""
    x = torch.randn(6, 3, 4, dtype=torch.float64)
    parts = [torch.ops.npu.batch_norm_reduce(half.npu(), 1e-5) for half in (x[:2], x[2:])]
    sums, squares = (torch.stack(each) for each in zip(*parts, strict=True))
    counts = torch.tensor([8.0, 16.0]).npu()
    mean, var = torch.zeros(3).double().npu(), torch.ones(3).double().npu()
    got = torch.ops.npu.batch_norm_gather_stats_update(x.npu(), sums, squares, mean, var, 0.1, 1e-5, counts)
    norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    norm(x)
    torch.testing.assert_close(got[0].cpu(), x.mean((0, 2)))
    torch.testing.assert_close(got[1].cpu(), (x.var((0, 2), correction=0) + 1e-5).rsqrt())
    torch.testing.assert_close(mean.cpu(), norm.running_mean)
    torch.testing.assert_close(var.cpu(), norm.running_var)
