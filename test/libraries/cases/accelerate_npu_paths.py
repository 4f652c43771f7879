"""accelerate: what it does on npu only. Batch sizes by running out of memory, memory maps, offloading, seeds."""

import torch
from accelerate import Accelerator, cpu_offload, dispatch_model, infer_auto_device_map, init_empty_weights
from accelerate.utils import (
    find_executable_batch_size,
    get_max_memory,
    is_npu_available,
    release_memory,
    send_to_device,
    set_seed,
    synchronize_rng_states,
)
from accelerate.utils.memory import clear_device_cache
from accelerate.utils.modeling import get_grad_scaler


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.Linear(32, 4))


def shrink_the_batch_until_it_fits() -> None:
    free, _ = torch.npu.mem_get_info()
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def run(batch_size: int) -> int:
        tried.append(batch_size)
        torch.empty(batch_size, free // 16, dtype=torch.uint8, device="npu")
        return batch_size

    assert 8 <= run() <= 16 and tried[0] == 64 and tried == sorted(tried, reverse=True), tried


def place_by_memory() -> None:
    known = get_max_memory()
    assert known[0] > 0 and "cpu" in known and len(known) == torch.npu.device_count() + 1
    x = torch.randn(2, 16)
    expected = net()(x)
    with init_empty_weights():
        empty = net()
    limits = {0: 6500, 1: 1 << 20, "cpu": 1 << 20}  # room for the first layer, and the largest one beside it
    places = infer_auto_device_map(empty, max_memory=limits)
    assert {0, 1} <= set(places.values()), places
    split = dispatch_model(net(), places)
    torch.testing.assert_close(split(x.npu()).cpu(), expected)
    offloaded = cpu_offload(net(), execution_device=torch.device("npu", 0))
    torch.testing.assert_close(offloaded(x.npu()).cpu(), expected)


def move_and_release() -> None:
    batch = send_to_device({"x": [torch.ones(2)], "y": (torch.zeros(1),)}, torch.device("npu", 0), non_blocking=True)
    assert batch["x"][0].device.type == batch["y"][0].device.type == "npu"
    (gone,) = release_memory(batch)
    clear_device_cache(garbage_collection=True)
    assert gone is None


def repeat_by_seed() -> None:
    set_seed(3)
    first = torch.randn(4, device="npu")
    set_seed(3)
    assert torch.equal(first, torch.randn(4, device="npu"))


def scale_gradients() -> None:
    assert isinstance(get_grad_scaler(), torch.amp.GradScaler)
    accelerator = Accelerator(mixed_precision="fp16")
    model, optimizer = net(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    with accelerator.accumulate(model):
        loss = model(torch.randn(2, 16, device=accelerator.device)).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    synchronize_rng_states(["npu", "torch"])
    assert accelerator.device.type == "npu" and not accelerator.optimizer_step_was_skipped


def main() -> None:
    assert is_npu_available(check_device=True)
    for step in (shrink_the_batch_until_it_fits, place_by_memory, move_and_release, repeat_by_seed, scale_gradients):
        print("--", step.__name__)
        step()


if __name__ == "__main__":
    main()
