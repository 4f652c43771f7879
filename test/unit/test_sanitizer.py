"""The stream sanitizer: what it must find, and what it must not complain of."""

import gc

import pytest
import torch
from torch_cann.sanitizer import StreamSanitizer


@pytest.fixture
def side() -> torch.npu.Stream:
    return torch.npu.Stream()


def _write_and_read(side: torch.npu.Stream, order) -> list:
    with StreamSanitizer() as sanitizer:
        x = torch.zeros(64, device="npu")
        torch.npu.synchronize()
        x.add_(1)
        order()
        with torch.npu.stream(side):
            x.mul(2)
    return sanitizer.races


def test_a_read_after_a_write_on_another_stream_is_found_with_both_stacks(side) -> None:
    (race,) = _write_and_read(side, lambda: None)
    assert (race.now.operator, race.before.operator, race.reused) == ("aten::mul", "aten::add_", False)
    assert (race.now.write, race.before.write, race.size) == (False, True, 256)
    assert race.now.stream == f"stream {side.stream_id} of npu:0"
    assert race.before.stream == "the default stream of npu:0"
    for access, line in ((race.now, "x.mul(2)"), (race.before, "x.add_(1)")):
        assert access.stack[-1].line == line and access.stack[-1].name == "_write_and_read"
    text = str(race)
    assert "no event orders them" in text and "wait_stream()" in text and text.count(__file__) >= 2


@pytest.mark.parametrize(
    "order",
    [
        lambda side: side.wait_stream(torch.npu.current_stream()),
        lambda side: side.wait_event(torch.npu.current_stream().record_event()),
        lambda side: torch.npu.synchronize(),
        lambda side: torch.npu.current_stream().synchronize(),
        lambda side: torch.npu.current_stream().record_event().synchronize(),
        lambda side: torch.npu.current_stream().query(),
        lambda side: torch.ones(1, device="npu").item(),
        lambda side: torch.ones(1, device="npu").cpu(),
        lambda side: torch.ones(3, device="npu").nonzero(),
    ],
)
def test_what_orders(side, order) -> None:
    assert _write_and_read(side, lambda: order(side)) == []


def test_what_does_not_order(side) -> None:
    def event_before_the_write() -> None:
        side.wait_event(early)

    early = torch.npu.current_stream().record_event()
    other = torch.npu.Stream()
    assert len(_write_and_read(side, event_before_the_write)) == 1
    assert len(_write_and_read(side, lambda: other.wait_stream(torch.npu.current_stream()))) == 1
    pinned = torch.ones(1000).pin_memory()
    assert len(_write_and_read(side, lambda: pinned.npu(non_blocking=True))) == 1


def test_a_write_after_a_read_and_two_writes(side) -> None:
    with StreamSanitizer() as sanitizer:
        x = torch.zeros(64, device="npu")
        torch.npu.synchronize()
        with torch.npu.stream(side):
            x.sum()
        x.zero_()  # while side may still read
        torch.npu.synchronize()
        with torch.npu.stream(side):
            x.fill_(1)
        torch.relu_(x)
    assert [(r.now.operator, r.before.operator) for r in sanitizer.races] == [
        ("aten::zero_", "aten::sum"),
        ("aten::relu_", "aten::fill_"),
    ]


def test_two_reads_and_parts_of_a_tensor_do_not_race(side) -> None:
    with StreamSanitizer() as sanitizer:
        x = torch.zeros(8, 8, device="npu")
        torch.npu.synchronize()
        x.sum()
        with torch.npu.stream(side):
            x.sum()
        torch.npu.synchronize()
        for first, second in ((x[:4], x[4:]), (x[:, :4], x[:, 4:]), (x[::2], x[1::2])):
            first.add_(1)
            with torch.npu.stream(side):
                second.add_(1)
            torch.npu.synchronize()
        x[:, :5].add_(1)
        assert sanitizer.races == []
        with torch.npu.stream(side):
            x[:, 4:].add_(1)
    assert len(sanitizer.races) == 1


def _drop_while_in_use(side: torch.npu.Stream, before_drop) -> list:
    gc.collect()
    with StreamSanitizer() as sanitizer:
        x = torch.zeros(1 << 20, device="npu")
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            x.sum()
        address = x.data_ptr()
        before_drop(x)
        del x
        y = torch.zeros(1 << 20, device="npu")
        assert y.data_ptr() == address
    return sanitizer.races


def test_memory_that_is_reused_while_another_stream_may_use_it(side) -> None:
    (race,) = _drop_while_in_use(side, lambda x: None)
    assert race.reused and race.now.operator == "aten::zero_" and race.before.operator == "aten::sum"
    assert "record_stream()" in str(race)
    assert _drop_while_in_use(side, lambda x: x.record_stream(side)) == []
    assert _drop_while_in_use(side, lambda x: torch.npu.current_stream().wait_stream(side)) == []


def test_erase_stream_takes_a_record_back(side) -> None:
    import torch_npu

    def record_and_erase(x: torch.Tensor) -> None:
        x.record_stream(side)
        torch_npu.erase_stream(x, side)

    assert len(_drop_while_in_use(side, record_and_erase)) == 1


def test_each_pair_of_lines_is_reported_once_and_can_warn_or_raise(side) -> None:
    def racing() -> None:
        x = torch.zeros(64, device="npu")
        with torch.npu.stream(side):
            x.mul(2)

    with StreamSanitizer() as sanitizer:
        for _ in range(3):
            racing()
            torch.npu.synchronize()
    assert len(sanitizer.races) == 1
    with StreamSanitizer("warn"), pytest.warns(UserWarning, match="stream sanitizer: aten::mul and aten::zero_"):
        racing()
    with StreamSanitizer("raise"), pytest.raises(RuntimeError, match="stream sanitizer: aten::mul and aten::zero_"):
        racing()
    racing()


def test_bad_use() -> None:
    with pytest.raises(ValueError, match="on_race must be"):
        StreamSanitizer("shout")
    with StreamSanitizer(), pytest.raises(RuntimeError, match="on already"):
        StreamSanitizer().enable()


def test_training_with_a_prefetching_loader_is_clean(side) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randn(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).npu()
    optimizer = torch.optim.AdamW(model.parameters())

    def batches():
        ready = None
        for batch in loader:
            with torch.npu.stream(side):
                upcoming = [t.npu(non_blocking=True) for t in batch]
            if ready is not None:
                yield ready
            torch.npu.current_stream().wait_stream(side)
            for tensor in upcoming:
                tensor.record_stream(torch.npu.current_stream())
            ready = upcoming
        yield ready

    with StreamSanitizer("raise") as sanitizer:
        for _ in range(2):
            for x, y in batches():
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
    assert sanitizer.races == []


def test_backward_on_several_streams_is_clean(side) -> None:
    w = torch.randn(32, 32, device="npu", requires_grad=True)
    with StreamSanitizer("raise") as sanitizer:
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with torch.npu.stream(side):
            left = (w @ w).sum()
        right = (w * w).sum()
        main.wait_stream(side)
        (left + right).backward()
        w.grad.zero_()
    assert sanitizer.races == []


def test_copies_between_cards_order_their_streams() -> None:
    with StreamSanitizer("raise") as sanitizer:
        x = torch.ones(64, device="npu:0")
        y = (x * 2).to("npu:1")
        (y + 1).to("npu:0").add_(x)
    assert sanitizer.races == []


@pytest.mark.parametrize(("value", "expected"), [("1", "RuntimeError"), ("warn", "UserWarning"), ("0", "nothing")])
def test_the_environment_variable(run_python, value, expected) -> None:
    code = """
import warnings, torch, torch_npu
x = torch.zeros(64, device="npu")
try:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.npu.stream(torch.npu.Stream()):
            x.mul(2)
    print(caught[0].category.__name__ if caught else "nothing")
except RuntimeError as error:
    print("RuntimeError" if "stream sanitizer" in str(error) else error)
"""
    assert run_python(code, TORCH_CANN_SANITIZER=value) == expected
