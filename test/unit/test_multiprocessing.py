"""npu tensors between processes: queues, process arguments, and the two start methods that work."""

import pytest
import torch
import torch.multiprocessing as mp


def _double(inbox, outbox) -> None:
    """Receives a tensor, doubles it in place, answers what it saw."""
    x, view = inbox.get()
    seen = (str(x.device), x.tolist(), x.untyped_storage().data_ptr() == view.untyped_storage().data_ptr())
    x.mul_(2)
    outbox.put(seen)
    inbox.get()  # the sender has looked


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_queue_shares_the_memory(method: str) -> None:
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=_double, args=(inbox, outbox))
    process.start()
    x = torch.arange(4.0, device="npu:1")
    inbox.put((x, x[2:]))
    assert outbox.get(timeout=60) == ("npu:1", [0, 1, 2, 3], True)
    assert x.tolist() == [0, 2, 4, 6]
    assert (x + 1).tolist() == [1, 3, 5, 7] and x.device == torch.device("npu:1")
    inbox.put(None)
    process.join(60)
    assert process.exitcode == 0
    x.resize_(100).fill_(1)
    assert x.sum().item() == 100


def _train(model: torch.nn.Linear, outbox) -> None:
    with torch.no_grad():
        model.weight.fill_(7)
    outbox.put(torch.empty(0, device="npu"))
    outbox.put((model.bias.requires_grad, isinstance(model.weight, torch.nn.Parameter), model.weight.is_npu))


def test_a_model_as_process_argument_is_shared() -> None:
    context = mp.get_context("spawn")
    outbox = context.Queue()
    model = torch.nn.Linear(2, 2).npu()
    process = context.Process(target=_train, args=(model, outbox))
    process.start()
    empty = outbox.get(timeout=60)
    assert empty.is_npu and empty.numel() == 0
    assert outbox.get(timeout=60) == (True, True, True)
    process.join(60)
    assert process.exitcode == 0
    assert model.weight.tolist() == [[7, 7], [7, 7]]


def _receive(inbox, outbox) -> None:
    try:
        inbox.get()
    except Exception as error:
        outbox.put(f"{type(error).__name__}: {error}")
    else:
        outbox.put("received")


def test_a_card_the_receiver_does_not_see(monkeypatch) -> None:
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0")
    process = context.Process(target=_receive, args=(inbox, outbox))
    process.start()
    inbox.put(torch.ones(1, device="npu:1"))
    assert "Invalid NPU device ID: got 1" in outbox.get(timeout=60)
    process.join(60)


def test_cpu_tensors_are_sent_as_before() -> None:
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=_double, args=(inbox, outbox))
    process.start()
    x = torch.arange(4.0)
    inbox.put((x, x[2:]))
    assert outbox.get(timeout=60) == ("cpu", [0, 1, 2, 3], True)
    assert x.tolist() == [0, 2, 4, 6]
    inbox.put(None)
    process.join(60)


class _Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index * index))


def test_data_loader_workers_fork_after_initialisation() -> None:
    torch.ones(1, device="npu")
    loader = torch.utils.data.DataLoader(_Squares(), 4, num_workers=2, pin_memory=True)
    batches = list(loader)
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cat([batch.npu() for batch in batches]).tolist() == [i * i for i in range(8)]
