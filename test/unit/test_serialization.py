"""Saving and loading, pickle, deepcopy, NumPy, DLPack."""

import copy
import io
import pickle

import numpy
import pytest
import torch

npu = torch.npu


def _saved(obj) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("map_location", "expected"),
    [
        (None, "npu:1"),
        ("cpu", "cpu"),
        ("npu", "npu:0"),
        ("npu:0", "npu:0"),
        (torch.device("npu:1"), "npu:1"),
        ({"npu:1": "npu:0"}, "npu:0"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.npu(0) if location == "npu:1" else None, "npu:0"),
    ],
)
def test_map_location(map_location, expected: str, weights_only: bool) -> None:
    x = torch.arange(10.0, device="npu:1")
    loaded = torch.load(_saved({"x": x}), map_location=map_location, weights_only=weights_only)["x"]
    assert loaded.device == torch.device(expected) and torch.equal(loaded.cpu(), x.cpu())


def test_meta_location() -> None:
    assert torch.load(_saved(torch.ones(3, device="npu")), map_location="meta").device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype).npu()
    loaded = torch.load(_saved(x))
    assert loaded.dtype == dtype and loaded.is_npu and torch.equal(loaded.cpu(), x.cpu())


def test_views_stay_views() -> None:
    base = torch.arange(12.0, device="npu").reshape(3, 4)
    loaded_base, loaded_view = torch.load(_saved([base, base[:, 1:3].t()]))
    assert loaded_view.untyped_storage().data_ptr() == loaded_base.untyped_storage().data_ptr()
    assert torch.equal(loaded_view, base[:, 1:3].t()) and loaded_view.stride() == (1, 4)


def test_legacy_file_format() -> None:
    file = io.BytesIO()
    torch.save(torch.arange(5.0, device="npu"), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert torch.load(file, map_location="cpu").tolist() == [0, 1, 2, 3, 4]


def test_mmap(tmp_path) -> None:
    torch.save(torch.arange(5.0, device="npu"), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", map_location="cpu", mmap=True).tolist() == [0, 1, 2, 3, 4]


def test_training_state_round_trip() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 4, device="npu")).sum().backward()
    optimizer.step()
    state = torch.load(_saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    twin = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).npu()
    twin.load_state_dict(state["model"])
    twin_optimizer = torch.optim.AdamW(twin.parameters())
    twin_optimizer.load_state_dict(state["optimizer"])
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values()))
    assert all(s["exp_avg"].is_npu for s in twin_optimizer.state.values())


def test_a_card_that_is_not_there(run_python, tmp_path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.ones(2, device="npu:1"), path)
    code = f"""
import torch, torch_npu
assert torch.load({str(path)!r}, map_location="cpu").sum() == 2
try:
    torch.load({str(path)!r})
except RuntimeError as e:
    print("device_count() is 1" in str(e) and "map_location" in str(e))
"""
    assert run_python(code, ASCEND_RT_VISIBLE_DEVICES="3") == "True"


def test_a_checkpoint_loads_without_the_package(run_python, tmp_path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": torch.nn.Linear(2, 2).npu().state_dict()}, path)
    code = f"""
import sys, torch
assert "torch_cann" not in sys.modules
for weights_only in (True, False):
    state = torch.load({str(path)!r}, map_location="cpu", weights_only=weights_only)
    assert state["w"]["weight"].device.type == "cpu"
try:
    torch.load({str(path)!r})
except RuntimeError as e:
    print("npu:0" in str(e))
"""
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "True"


def test_pickle_and_deepcopy() -> None:
    x = torch.arange(6.0, device="npu:1").reshape(2, 3).t()
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert other.device == x.device and torch.equal(other, x) and other.stride() == x.stride()
    model = torch.nn.Linear(3, 3).npu()
    model.tied = model.weight
    twin = copy.deepcopy(model)
    assert twin.tied is twin.weight and twin.weight is not model.weight and twin.weight.is_npu
    assert pickle.loads(pickle.dumps(model)).weight.is_npu


def test_generators_pickle() -> None:
    generator = torch.Generator(device="npu").manual_seed(4)
    torch.rand(3, device="npu", generator=generator)
    twin = pickle.loads(pickle.dumps(generator))
    assert torch.equal(torch.rand(3, device="npu", generator=twin), torch.rand(3, device="npu", generator=generator))


def test_numpy() -> None:
    with pytest.raises(TypeError, match="can't convert npu:0 device type tensor to numpy"):
        torch.ones(1, device="npu").numpy()
    array = numpy.arange(3.0)
    assert torch.from_numpy(array).npu().cpu().numpy().tolist() == [0, 1, 2]
    assert torch.ones(2, device="npu").numpy(force=True).tolist() == [1, 1]
    assert torch.arange(3, device="npu").tolist() == [0, 1, 2]


def test_dlpack_capsules_share_the_memory() -> None:
    x = torch.arange(6.0, device="npu:1").reshape(2, 3)[:, 1:]
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.device == x.device and torch.equal(x, y)
    y[0, 0] = 9
    assert x[0, 0].item() == 9
    capsule = x.__dlpack__()
    del x
    assert torch.from_dlpack(capsule)[0, 0].item() == 9


def test_dlpack_from_a_tensor_needs_the_capsule() -> None:
    # PyTorch's Tensor.__dlpack_device__ knows out-of-tree devices by the name "privateuse1" only, renamed or not.
    with pytest.raises(ValueError, match="Unknown device type npu"):
        torch.from_dlpack(torch.ones(1, device="npu"))


def test_safe_moves_between_processes_keep_parameters() -> None:
    model = torch.nn.Linear(2, 2)
    weight = model.weight
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    model.to("npu")
    assert model.weight is weight and weight.is_npu
    model(torch.ones(1, 2, device="npu")).sum().backward()
    before = weight.detach().cpu().clone()
    optimizer.step()
    assert torch.equal(weight.detach().cpu(), before - 1)
    assert model.cpu().weight is weight and not weight.is_npu


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t)), lambda t: torch.load(_saved(t), weights_only=False)],
)
def test_quantized_tensors_are_copied_and_saved(per_channel: bool, copied) -> None:
    x = torch.arange(12.0).view(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])
    if per_channel:
        q = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8).npu()
    else:
        q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).npu()
    twin = copied(q)
    assert twin.device == q.device and twin.qscheme() == q.qscheme()
    assert torch.equal(twin.dequantize().cpu(), q.dequantize().cpu())
    assert twin.untyped_storage().data_ptr() != q.untyped_storage().data_ptr()
