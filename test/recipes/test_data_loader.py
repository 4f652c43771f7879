"""OptimizedDataLoader: the same batches as plain PyTorch's, on the device, and a place to go on from."""

import threading
import time
from collections import namedtuple
from statistics import median

import pytest
import torch
from cann.recipes.train import OptimizedDataLoader
from small import Numbers, points
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset


def values(batches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rank", [0, 2])
def test_batches_are_those_of_distributed_sampler(workers: int, rank: int) -> None:
    dataset = Numbers(50)
    sampler = DistributedSampler(dataset, num_replicas=3, rank=rank, shuffle=True, seed=7)
    ours = OptimizedDataLoader(dataset, 4, workers, shuffle=True, seed=7, rank=rank, world_size=3, prefetch_factor=2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = list(ours)
        assert values(batches) == values(DataLoader(dataset, 4, sampler=sampler))
        assert all(batch.device == torch.device("npu", 0) for batch in batches)
    assert len(ours) == len(batches)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_going_on_with_another_number_of_ranks(world: int) -> None:
    dataset = Numbers(64)
    first = [OptimizedDataLoader(dataset, 4, shuffle=True, rank=rank, world_size=2) for rank in range(2)]
    iterators = [iter(loader) for loader in first]
    seen = [value for _ in range(3) for iterator in iterators for value in next(iterator).tolist()]
    state = first[0].state_dict()
    assert state == first[1].state_dict() and state["samples"] == 24

    second = [OptimizedDataLoader(dataset, 8 // world, shuffle=True, rank=r, world_size=world) for r in range(world)]
    for loader in second:
        loader.load_state_dict(state)
    seen += [value for loader in second for batch in loader for value in batch.tolist()]
    assert sorted(seen) == list(range(64))
    assert [loader.epoch for loader in second] == [1] * world
    for iterator in iterators:
        iterator.close()


@pytest.mark.parametrize("depth", [0, 3])
def test_the_state_counts_what_was_handed_out_not_what_was_fetched(depth: int) -> None:
    loader = OptimizedDataLoader(Numbers(40), 4, shuffle=True, device_prefetch=depth)
    whole = values(loader)
    loader.set_epoch(0)
    for position, batch in enumerate(loader):
        assert batch.tolist() == whole[position]
        if position == 4:
            break
    other = OptimizedDataLoader(Numbers(40), 4, shuffle=True)
    other.load_state_dict(loader.state_dict())
    assert values(other) == whole[5:]
    assert values(other) == values(loader), "both are in epoch 1 now"


def test_own_sampler_and_iterable_dataset_go_on_too() -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(20))

    for arguments in ({"dataset": Numbers(20), "sampler": list(reversed(range(20)))}, {"dataset": Stream()}):
        loader = OptimizedDataLoader(batch_size=3, **arguments)
        whole = values(loader)
        iterator = iter(loader)
        next(iterator), next(iterator)
        other = OptimizedDataLoader(batch_size=3, **arguments)
        other.load_state_dict(loader.state_dict())
        assert values(other) == whole[2:]
        iterator.close()


def test_conversion_of_types_and_formats() -> None:
    Sample = namedtuple("Sample", "image label")

    def collate(_samples):
        image = torch.rand(2, 3, 4, 5, dtype=torch.float64)
        return {"sample": Sample(image, torch.tensor([1, 2])), "rest": [torch.ones(2, 3), "text"]}

    batch = next(iter(OptimizedDataLoader(Numbers(2), 2, collate_fn=collate, memory_format="auto")))
    image, label = batch["sample"]
    assert image.dtype == torch.float32 and image.is_contiguous(memory_format=torch.channels_last)
    assert label.dtype == torch.int64 and label.device.type == "npu"
    assert batch["rest"][0].is_contiguous() and batch["rest"][1] == "text"
    batch = next(iter(OptimizedDataLoader(Numbers(2), 2, collate_fn=collate, dtype="bf16")))
    assert batch["sample"].image.dtype == torch.bfloat16 and batch["sample"].image.is_contiguous()
    batch = next(iter(OptimizedDataLoader(Numbers(2), 2, collate_fn=collate, dtype=None, device="cpu")))
    assert batch["sample"].image.dtype == torch.float64 and batch["sample"].image.device.type == "cpu"


def test_errors_of_the_dataset_arrive_and_threads_end() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 6:
                raise LookupError("sample 6 is broken")
            return super().__getitem__(index)

    loader = OptimizedDataLoader(Broken(10), 2)
    with pytest.raises(LookupError, match="sample 6 is broken"):
        list(loader)
    for _batch in loader:
        break
    del _batch
    assert not [t for t in threading.enumerate() if t.name == "device-prefetch"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, but is 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"dtype": "int8"}, "dtype must be one of float32, float16"),
        ({"memory_format": "NHWC"}, "memory_format must be None, 'auto' or"),
        ({"rank": 1}, "rank and world_size belong together"),
        ({"rank": 3, "world_size": 2}, "rank must be from 0 to world_size - 1 = 1"),
        ({"shuffle": True, "sampler": [1]}, "exclude each other"),
        ({"batch_sampler": [[1]]}, "batch_sampler has no place here"),
        ({"persistent_workers": True}, "persistent_workers needs num_workers of at least 1"),
        ({"prefetch_factor": 0}, "prefetch_factor must be at least 1"),
    ],
)
def test_refusals(arguments, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        OptimizedDataLoader(Numbers(4), **arguments)


def test_states_of_something_else_are_refused() -> None:
    state = OptimizedDataLoader(Numbers(8), 2, seed=1).state_dict()
    with pytest.raises(ValueError, match="of seed 1, but this loader's is 2"):
        OptimizedDataLoader(Numbers(8), 2, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="of dataset_size 8, but this loader's is 9"):
        OptimizedDataLoader(Numbers(9), 2, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="no 'epoch'"):
        OptimizedDataLoader(Numbers(8), 2).load_state_dict({"batches": 3})


class Slow(Numbers):
    """Loading takes as long as a disk that must seek."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return super().__getitem__(index)


def test_slow_loading_hides_behind_computing() -> None:
    def seconds(loader) -> float:
        start = time.perf_counter()
        for batch in loader:
            batch.to("npu")
            time.sleep(0.04)  # a device that is busy this long, whatever else this machine does
        return time.perf_counter() - start

    plain = DataLoader(Slow(64), 8)
    ours = OptimizedDataLoader(Slow(64), 8)
    times = [(seconds(plain), seconds(ours)) for _ in range(3)]
    gain = median(t[0] for t in times) / median(t[1] for t in times)
    assert gain > 1.3, f"{gain:.2f} times as fast, where overlapping all but the first load would give 1.78"


def test_points_train_the_same_as_with_a_plain_loader() -> None:
    plain = DataLoader(points(), 8)
    for (x, y), (x_npu, y_npu) in zip(plain, OptimizedDataLoader(points(), 8), strict=True):
        assert torch.equal(x, x_npu.cpu()) and torch.equal(y, y_npu.cpu())


def test_a_loop_left_open_does_not_disturb_the_end_of_the_process(run_python) -> None:
    code = """
import torch
from cann.recipes.train import OptimizedDataLoader
batches = iter(OptimizedDataLoader([torch.ones(200_000)] * 1000, batch_size=2, device="npu", prefetch_factor=4))
print(next(batches).sum().item())
"""
    for _ in range(3):
        assert run_python(code) == "400000.0"
