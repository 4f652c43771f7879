"""FSDP 1 and 2, each way to shard, with mixed precision, offload and state dicts, against one process."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import device
from test_training import Model, batches, check_against_one_process, clip_plain, full_state, mean_over_ranks, my_rows
from test_training import one_process, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def fsdp1_model(**settings) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    settings = {"auto_wrap_policy": ModuleWrapPolicy({nn.Sequential}), "use_orig_params": True, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # NO_SHARD and FSDP1 itself are going away
        return FullyShardedDataParallel(Model(), device_id=device(), **settings)


def train_fsdp1(model: nn.Module) -> list[torch.Tensor]:
    return train(model, my_rows, lambda model: model.clip_grad_norm_(0.05))


def fsdp1(strategy: str) -> None:
    from torch.distributed.fsdp import ShardingStrategy

    settings = {"sharding_strategy": ShardingStrategy[strategy]}
    if "HYBRID" in strategy:
        settings["device_mesh"] = init_device_mesh("npu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fsdp1_model(**settings)
    check_against_one_process(train_fsdp1(model), full_state(model))


def fsdp1_flat_parameters() -> None:
    model = fsdp1_model(use_orig_params=False, limit_all_gathers=False, forward_prefetch=True)
    check_against_one_process(train_fsdp1(model), full_state(model))


def fsdp1_synced_states() -> None:
    """Weights of rank 0 reach all ranks."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    plain = Model()
    if dist.get_rank() != 0:
        for parameter in plain.parameters():
            nn.init.zeros_(parameter)
    model = FullyShardedDataParallel(plain, device_id=device(), use_orig_params=True, sync_module_states=True)
    check_against_one_process(train_fsdp1(model), full_state(model))


def fsdp1_offload() -> None:
    from torch.distributed.fsdp import CPUOffload

    model = fsdp1_model(cpu_offload=CPUOffload(offload_params=True))
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    losses = train_fsdp1(model)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    check_against_one_process(losses, full_state(model))


def fsdp1_no_sync() -> None:
    """Gradients of two halves of a batch, of which only the second is reduced."""
    batch = torch.cat(batches()[:2])
    model = fsdp1_model()
    first, second = my_rows(batch).chunk(2)
    for rows, context in ((first, model.no_sync()), (second, warnings.catch_warnings())):
        with context:
            ((model(rows) - rows.roll(1, -1)).square().mean() / 2).backward()
    norm = model.clip_grad_norm_(1e9)
    plain = Model()
    # Rows of a rank are rolled within themselves along features only, so the mean over all rows is the same.
    (plain(batch) - batch.roll(1, -1)).square().mean().backward()
    torch.testing.assert_close(norm.cpu(), nn.utils.clip_grad_norm_(plain.parameters(), 1e9), rtol=1e-5, atol=0)


def fsdp1_mixed_precision() -> None:
    from torch.distributed.fsdp import MixedPrecision

    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
    model = fsdp1_model(mixed_precision=precision)
    assert mean_over_ranks(train_fsdp1(model)) == pytest.approx(one_process()[0], rel=0.03)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def fsdp1_sharded_gradient_scaler() -> None:
    """An infinite gradient on one rank makes all ranks skip the step and halve the scale."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    model = fsdp1_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = ShardedGradScaler(device="npu", init_scale=8.0)

    def step(factor: float) -> torch.Tensor:
        optimizer.zero_grad()
        scaler.scale(model(my_rows(batches()[0])).mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    skipped = step(float("inf") if dist.get_rank() == 1 else 1.0)
    assert torch.equal(skipped, before) and scaler.get_scale() == 4.0
    assert not torch.equal(step(1.0), before) and scaler.get_scale() == 4.0


def fsdp1_state_dict(kind: str) -> None:
    """What a trained model's state dict of this type says goes into a fresh model, which then computes the same."""
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    model, other = fsdp1_model(use_orig_params=False), fsdp1_model(use_orig_params=False)
    losses = train_fsdp1(model)
    rows = my_rows(batches()[0])
    assert not torch.equal(model(rows), other(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with FullyShardedDataParallel.state_dict_type(model, StateDictType[kind]):
            state = model.state_dict()
        with FullyShardedDataParallel.state_dict_type(other, StateDictType[kind]):
            other.load_state_dict(state)
    torch.testing.assert_close(other(rows), model(rows), rtol=0, atol=0)
    if kind == "FULL_STATE_DICT":
        check_against_one_process(losses, state)


def fsdp1_optimizer_state() -> None:
    """The whole optimizer state is that of one process, and training goes on from it in a fresh model."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    def steps(model, optimizer, some) -> None:
        for batch in some:
            optimizer.zero_grad()
            rows = my_rows(batch)
            (model(rows) - rows.roll(1, -1)).square().mean().backward()
            optimizer.step()

    model, other = fsdp1_model(), fsdp1_model()
    optimizer, fresh = (torch.optim.AdamW(each.parameters(), 1e-2) for each in (model, other))
    steps(model, optimizer, batches()[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = FullyShardedDataParallel.optim_state_dict(model, optimizer)
        other.load_state_dict(model.state_dict())
        fresh.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(other, fresh, state))
    for each, stepper in ((model, optimizer), (other, fresh)):
        steps(each, stepper, batches()[3:])
    for found, expected in zip(other.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def fsdp2_model(offload: bool = False, **settings) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = Model() if offload else Model().to(device())
    fully_shard(model.inner, **settings)
    return fully_shard(model, **settings)


def fsdp2(**settings) -> None:
    model = fsdp2_model(**settings)
    check_against_one_process(train(model, my_rows, clip_plain), full_state(model))


def fsdp2_hybrid() -> None:
    fsdp2(mesh=init_device_mesh("npu", (2, 2), mesh_dim_names=("replicate", "shard")))


def fsdp2_kept_after_forward() -> None:
    fsdp2(reshard_after_forward=False)


def fsdp2_resharded_to_pairs() -> None:
    fsdp2(reshard_after_forward=2)


def fsdp2_other_dimension() -> None:
    from torch.distributed.tensor import Shard

    fsdp2(shard_placement_fn=lambda parameter: Shard(parameter.ndim - 1))


def fsdp2_offload() -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy

    model = fsdp2_model(offload=True, offload_policy=CPUOffloadPolicy(pin_memory=True))
    model.scale.data = model.scale.data.to(device())
    losses = train(model, my_rows, lambda model: None)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    plain = Model()
    expected = train(plain, lambda batch: batch, lambda model: None)
    torch.testing.assert_close(mean_over_ranks(losses), [loss.item() for loss in expected], rtol=1e-4, atol=1e-5)


def fsdp2_mixed_precision() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fsdp2_model(
        mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, output_dtype=torch.float32)
    )
    assert mean_over_ranks(train(model, my_rows, clip_plain)) == pytest.approx(one_process()[0], rel=0.03)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def fsdp2_accumulation() -> None:
    """Gradients of two halves of a batch; the first stays local."""
    batch = torch.cat(batches()[:2])
    model = fsdp2_model()
    for number, rows in enumerate(my_rows(batch).chunk(2)):
        model.set_requires_gradient_sync(number == 1)
        ((model(rows) - rows.roll(1, -1)).square().mean() / 2).backward()
    plain = Model()
    (plain(batch) - batch.roll(1, -1)).square().mean().backward()
    for found, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found.grad.full_tensor().cpu(), expected.grad, rtol=1e-4, atol=1e-6)


def fsdp2_prefetching() -> None:
    model = fsdp2_model()
    model.set_modules_to_forward_prefetch([model.inner])
    model.set_modules_to_backward_prefetch([model.inner])
    check_against_one_process(train(model, my_rows, clip_plain), full_state(model))


def fsdp2_checkpointed() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import fully_shard

    model = Model().to(device())
    model.inner = checkpoint_wrapper(model.inner)
    fully_shard(model.inner)
    fully_shard(model)
    losses = train(model, my_rows, clip_plain)
    torch.testing.assert_close(mean_over_ranks(losses), one_process()[0], rtol=1e-4, atol=1e-5)


def _named(function, *arguments):
    return pytest.param(functools.partial(function, *arguments), id="-".join((function.__name__, *arguments)))


_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
_STATE_DICTS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
_CASES = [
    *(_named(fsdp1, strategy) for strategy in _STRATEGIES),
    *(_named(fsdp1_state_dict, kind) for kind in _STATE_DICTS),
    fsdp1_flat_parameters,
    fsdp1_synced_states,
    fsdp1_offload,
    fsdp1_no_sync,
    fsdp1_mixed_precision,
    fsdp1_sharded_gradient_scaler,
    fsdp1_optimizer_state,
    fsdp2_hybrid,
    fsdp2_kept_after_forward,
    fsdp2_resharded_to_pairs,
    fsdp2_other_dimension,
    fsdp2_offload,
    fsdp2_mixed_precision,
    fsdp2_accumulation,
    fsdp2_prefetching,
    fsdp2_checkpointed,
]


@pytest.mark.parametrize("case", _CASES)
def test_same_as_one_process(on_four_ranks, case) -> None:
    on_four_ranks(case)
