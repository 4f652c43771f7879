"""Streams and events: identity, currentness, order, time."""

import threading
import time

import pytest
import torch

npu = torch.npu


def test_default_and_current() -> None:
    assert npu.current_stream() == npu.default_stream()
    assert npu.current_stream(1) == npu.default_stream("npu:1") != npu.default_stream(0)
    assert isinstance(npu.current_stream(), npu.Stream) and isinstance(npu.current_stream(), torch.Stream)
    assert torch.accelerator.current_stream() == npu.current_stream()


def test_new_streams_differ_and_carry_a_handle() -> None:
    first, second = npu.Stream(), npu.Stream(device="npu:0")
    assert first != second != npu.default_stream()
    assert len({first, second, npu.default_stream()}) == 3
    assert first.npu_stream != second.npu_stream
    assert npu.ExternalStream(first.npu_stream) == first
    assert npu.Stream(stream_id=first.stream_id, device_index=0, device_type=first.device_type) == first


def test_priority() -> None:
    assert npu.Stream().priority == 0 and npu.Stream(priority=-1).priority == -1
    least, greatest = npu.Stream.priority_range()
    assert greatest < least


def test_repr_names_the_class_of_torch_npu() -> None:
    stream = npu.Stream(1)
    assert repr(stream) == f"<torch_npu.npu.Stream device=npu:1 npu_stream={stream.npu_stream:#x}>"
    event = npu.Event()
    assert repr(event).startswith("<torch_npu.npu.Event ")


def test_stream_context_restores_stream_and_card() -> None:
    side = npu.Stream(1)
    with npu.stream(side):
        assert npu.current_device() == 1 and npu.current_stream() == side
        with npu.stream(None):
            assert npu.current_stream() == side
    assert npu.current_device() == 0 and npu.current_stream() == npu.default_stream()
    assert npu.current_stream(1) == npu.default_stream(1)
    with side:
        assert npu.current_stream() == side
    assert npu.current_device() == 0


def test_a_context_can_be_entered_inside_itself() -> None:
    context = npu.stream(npu.Stream())
    with context, context:
        assert npu.current_stream() == context.stream
    assert npu.current_stream() == npu.default_stream()


def test_set_stream_moves_to_the_streams_card() -> None:
    side = npu.Stream(1)
    npu.set_stream(side)
    assert npu.current_device() == 1 and npu.current_stream() == side
    npu.set_stream(npu.default_stream(1))
    npu.set_stream(None)
    assert npu.current_stream() == npu.default_stream(1)


def test_current_stream_is_per_thread() -> None:
    seen = []
    with npu.stream(npu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(npu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [npu.default_stream()]


def test_work_on_a_side_stream_is_seen_after_wait_stream() -> None:
    side = npu.Stream()
    side.wait_stream(npu.current_stream())
    with npu.stream(side):
        x = torch.full((1000,), 2.0, device="npu") * 3
    npu.current_stream().wait_stream(side)
    x.record_stream(npu.current_stream())
    assert x.sum().item() == 6000
    assert side.query()
    side.synchronize()


def test_events_measure_the_host_clock() -> None:
    start, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record(npu.Stream())
    end.synchronize()
    assert end.query() and 20 <= start.elapsed_time(end) < 2000
    assert end.elapsed_time(start) < 0


def test_elapsed_time_needs_timing_and_a_record() -> None:
    timed = npu.Event(enable_timing=True)
    with pytest.raises((RuntimeError, ValueError)):
        timed.elapsed_time(npu.Event(enable_timing=True))
    plain = npu.Event()
    plain.record()
    timed.record()
    with pytest.raises((RuntimeError, ValueError)):
        timed.elapsed_time(plain)


def test_record_and_wait_between_streams() -> None:
    side = npu.Stream()
    event = side.record_event()
    assert isinstance(event, npu.Event) and isinstance(event, torch.Event)
    npu.current_stream().wait_event(event)
    event.wait()
    event.wait(side)
    mine = npu.Event()
    assert side.record_event(mine) is mine and mine.npu_event != 0


@pytest.mark.parametrize(
    "use",
    [
        lambda other: npu.Stream().wait_event(other),
        lambda other: npu.Stream().wait_stream(other),
        lambda other: npu.Stream().record_event(other),
        lambda other: npu.Event().record(other),
        lambda other: npu.Event().wait(other),
    ],
)
def test_what_is_neither_stream_nor_event_is_refused(use) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.(Stream|Event), but got int"):
        use(3)


def test_ipc_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="torch.distributed"):
        npu.Event().ipc_handle()


def test_raw_stream_of_the_extension_is_the_handle() -> None:
    side = npu.Stream()
    with npu.stream(side):
        assert npu._C._npu_getCurrentRawStream(0) == side.npu_stream


def test_an_external_event_orders_streams_and_can_be_reset() -> None:
    event, side = torch.npu.ExternalEvent(), torch.npu.Stream()
    x = torch.ones(4, device="npu")
    event.record()
    event.wait(side)
    with torch.npu.StreamContext(side):
        y = x + 1
        event.reset()
        event.record(side)
    event.wait()
    assert event.query() and y.tolist() == [2] * 4 and isinstance(event, torch.npu.Event)


def test_a_stream_without_task_queue_is_a_stream() -> None:
    stream = torch.npu.SyncLaunchStream(priority=-1)
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
    assert isinstance(stream, torch.npu.Stream) and stream.query()
