"""Distributed checkpoints: what four ranks save, two ranks, one process and other layouts load."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from decoder import Decoder, batches, check_weights, loss_of, one_process, optimizer_of
from ranks import device
from test_tensor_parallel import parallelized
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def layout(name: str) -> nn.Module:
    """The decoder over all ranks: by FSDP2, by FSDP2 and tensor parallel, or replicated by DDP."""
    world = dist.get_world_size()
    if name == "ddp":
        return nn.parallel.DistributedDataParallel(Decoder().to(device()))
    if name == "fsdp-tp":
        mesh = init_device_mesh("npu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        model, data_mesh = parallelized(mesh["tp"]), mesh["dp"]
    else:
        model, data_mesh = Decoder().to(device()), init_device_mesh("npu", (world,))
    for block in model.blocks.values():
        fully_shard(block, mesh=data_mesh)
    return fully_shard(model, mesh=data_mesh)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, some) -> None:
    for ids, targets in some:  # all ranks take all rows, so that each layout has the same mean
        loss_of(model(ids.to(device())), targets.to(device())).backward()
        optimizer.step()
        optimizer.zero_grad()


def save(name: str, folder: str, in_background: bool = False) -> None:
    """One step, a checkpoint of weights and optimizer, and, if asked, further steps while it is written."""
    model = layout(name)
    optimizer = optimizer_of(model)
    train(model, optimizer, batches()[:1])
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 1}
    if in_background:
        # The threads that write coordinate themselves by a group for CPU tensors.
        written = dcp.async_save(state, checkpoint_id=folder, process_group=dist.new_group(backend="gloo"))
        train(model, optimizer, batches()[1:])
        written.result()
    else:
        dcp.save(state, checkpoint_id=folder)


def resume(name: str, folder: str) -> None:
    """The rest of the steps, from a checkpoint that ranks of another number or layout may have written."""
    model = layout(name)
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    optimizer = optimizer_of(model)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert state["step"] == 1
    train(model, optimizer, batches()[1:])
    plain = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    check_weights(plain, one_process()[1])


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [("fsdp", "fsdp"), ("fsdp", "fsdp-tp"), ("fsdp-tp", "fsdp"), ("fsdp-tp", "ddp"), ("ddp", "fsdp")],
)
def test_two_ranks_go_on_where_four_stopped(on_four_ranks, on_two_ranks, tmp_path, saved, loaded) -> None:
    on_four_ranks(save, saved, str(tmp_path))
    on_two_ranks(resume, loaded, str(tmp_path))


def test_four_ranks_go_on_where_two_stopped(on_four_ranks, on_two_ranks, tmp_path) -> None:
    on_two_ranks(save, "fsdp", str(tmp_path))
    on_four_ranks(resume, "fsdp-tp", str(tmp_path))


def test_training_goes_on_while_a_checkpoint_is_written(on_four_ranks, on_two_ranks, tmp_path) -> None:
    on_four_ranks(save, "fsdp", str(tmp_path), True)
    on_two_ranks(resume, "fsdp", str(tmp_path))


def test_one_process_reads_what_four_ranks_saved(on_four_ranks, tmp_path) -> None:
    on_four_ranks(save, "fsdp-tp", str(tmp_path))
    model = Decoder()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=str(tmp_path), no_dist=True)
    expected = Decoder()
    optimizer = optimizer_of(expected)
    ids, targets = batches()[0]
    loss_of(expected(ids), targets).backward()
    optimizer.step()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(state["model"][name], value, rtol=1e-4, atol=1e-5)
