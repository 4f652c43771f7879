"""torch_npu.utils: combined tensors, operation counts, affinity, saving in the background, reports."""

import os
import threading

import pytest
import torch
import torch.distributed as dist
import torch_npu
from torch_npu.utils import (
    FlopsCounter,
    get_part_combined_tensor,
    is_combined_tensor_valid,
    npu_combine_tensors,
    reset_thread_affinity,
    save_async,
    set_thread_affinity,
)


def test_combined_tensors_share_memory() -> None:
    tensors = [torch.arange(6.0, device="npu").view(2, 3).t(), torch.ones(4, device="npu")]
    values = [t.clone() for t in tensors]
    combined = npu_combine_tensors(tensors)
    assert combined.shape == (10,) and all(map(torch.equal, tensors, values))
    assert is_combined_tensor_valid(combined, tensors)
    combined.zero_()
    assert not tensors[0].any() and not tensors[1].any()
    part = get_part_combined_tensor(combined, 6, 4)
    assert part.data_ptr() == tensors[1].data_ptr() and part.shape == (4,)
    tensors[0] = torch.ones(2, 3, device="npu")
    assert not is_combined_tensor_valid(combined, tensors)
    assert npu_combine_tensors([]) is None and get_part_combined_tensor(None, 0, 1) is None
    assert is_combined_tensor_valid(None, [])
    with pytest.raises(RuntimeError, match="is not inside the 10"):
        get_part_combined_tensor(combined, 8, 4)
    with pytest.raises(RuntimeError, match="tensors of one dtype on one card"):
        npu_combine_tensors([torch.ones(1, device="npu"), torch.ones(1, device="npu").half()])
    with pytest.raises(RuntimeError, match="one is on cpu"):
        npu_combine_tensors([torch.ones(1)])


def test_flops_are_counted_apart_from_pauses() -> None:
    counter, a = FlopsCounter(), torch.ones(4, 4, device="npu")
    counter.start()
    a @ a
    counter.pause()
    a @ a
    assert counter.get_flops() == [128, 256]
    counter.resume()
    a @ a
    counter.stop()
    assert counter.get_flops() == [256, 384]
    a @ a
    assert counter.get_flops() == [256, 384]
    with pytest.raises(RuntimeError, match="without start"):
        counter.stop()


def test_thread_affinity() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    set_thread_affinity([core, core])
    assert os.sched_getaffinity(0) == {core}
    set_thread_affinity([[core, core]])
    assert os.sched_getaffinity(0) == {core}
    reset_thread_affinity()
    assert os.sched_getaffinity(0) == before
    set_thread_affinity()
    for wrong, message in (([3], "must be"), ([2, 1], "must be"), ([5000, 5000], "not among those")):
        with pytest.raises(ValueError, match=message):
            set_thread_affinity(wrong)


def test_saving_in_the_background(tmp_path) -> None:
    from torch_npu.utils.serialization import load

    weight = torch.ones(4, device="npu")
    save_async({"weight": weight, "step": 3}, tmp_path / "state.pt")
    weight.zero_()
    for thread in threading.enumerate():
        if thread.name == "save_async":
            thread.join()
    loaded = load(tmp_path / "state.pt", map_location="npu")
    assert loaded["step"] == 3 and loaded["weight"].tolist() == [1] * 4 and loaded["weight"].device.type == "npu"
    assert [p.name for p in tmp_path.iterdir()] == ["state.pt"]
    with pytest.raises(TypeError, match="writes to a path"):
        save_async({}, object())


def test_silent_fault_detection_is_accepted() -> None:
    torch_npu.utils.set_asd_loss_scale(1024.0)
    torch_npu.utils.register_asd_hook(torch.ones(1, device="npu"), torch.ones(1, device="npu"))
    with pytest.raises(ValueError, match="above 0"):
        torch_npu.utils.set_asd_loss_scale(0)


def test_paths_of_the_report(tmp_path) -> None:
    from torch_npu.utils import collect_env

    assert os.path.isdir(collect_env.get_torch_npu_install_path())
    assert collect_env.check_path_owner_consistent(str(tmp_path))
    assert collect_env.check_directory_path_readable(str(tmp_path)) is None
    with pytest.raises(NotADirectoryError):
        collect_env.check_directory_path_readable(str(tmp_path / "absent"))
    info = collect_env.get_env_info()
    assert info.npus[0].endswith("visible") and "CANN version" in collect_env.pretty_str(info)
    assert collect_env.get_pretty_env_info().startswith("PyTorch version")
    assert collect_env.get_torch_npu_version() == torch_npu.__version__


def test_singleton() -> None:
    from torch_npu.utils.profiler import Singleton

    @Singleton
    class One:
        pass

    assert One() is One()


def test_synchronised_batch_normalisation_of_one_rank_is_the_plain_one(tmp_path) -> None:
    from torch_npu.utils.syncbatchnorm import SyncBatchNorm

    dist.init_process_group("hccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        inputs = [torch.randn(4, 3, 5, device="npu").requires_grad_() for _ in range(2)]
        inputs[1].data.copy_(inputs[0].data)
        weights = [torch.rand(3, device="npu").requires_grad_(), torch.rand(3, device="npu").requires_grad_()]
        running = [[torch.zeros(3, device="npu"), torch.ones(3, device="npu")] for _ in range(2)]
        ours = SyncBatchNorm.apply(inputs[0], *weights, *running[0], 1e-5, 0.1, None, 1)
        grads = torch.autograd.grad(ours.square().sum(), (inputs[0], *weights))
        plain = torch.nn.functional.batch_norm(inputs[1], *running[1], *weights, True, 0.1, 1e-5)
        expected = torch.autograd.grad(plain.square().sum(), (inputs[1], *weights))
        torch.testing.assert_close(ours, plain)
        torch.testing.assert_close(grads, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(running[0], running[1])
    finally:
        dist.destroy_process_group()
