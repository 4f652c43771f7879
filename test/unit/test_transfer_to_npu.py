"""CUDA scripts on the NPU. In processes of their own, since the transfer replaces functions of PyTorch for good."""

SCRIPT = """
import os, torch
{how}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda" and torch.cuda.device_count() == torch.npu.device_count()
torch.cuda.set_device(1)
assert torch.cuda.current_device() == 1 and torch.ones(1).cuda().device == torch.device("npu:1")
torch.cuda.set_device(0)
model = torch.nn.Linear(4, 4).to(device)
assert next(model.parameters()).is_cuda and model.cuda() is model
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.cuda.amp.GradScaler()
x = torch.randn(2, 4, device="cuda:0", generator=torch.Generator("cuda").manual_seed(0))
with torch.autocast(device_type=device.type, dtype=torch.float16), torch.cuda.stream(torch.cuda.Stream()):
    y = model(x)
    assert y.dtype == torch.float16
with torch.amp.autocast("cuda", dtype=torch.bfloat16):
    assert model(x).dtype == torch.bfloat16
scaler.scale(y.float().sum()).backward()
scaler.step(optimizer)
scaler.update()
assert torch.amp.GradScaler()._device == "npu"
torch.cuda.synchronize()
start = torch.cuda.Event(enable_timing=True)
start.record()
assert torch.cuda.memory_allocated() == torch.npu.memory_allocated() > 0
assert torch.zeros_like(x.cpu(), device="cuda").is_npu and torch.full((1,), 2, device=device).is_npu
assert isinstance(torch.Generator("cuda"), torch.Generator) and torch.Generator("cuda").device.type == "npu"
assert isinstance(torch.cuda.default_generators[0], torch.Generator)
torch.save(model.state_dict(), "{path}")
assert torch.load("{path}", map_location="cuda:0")["weight"].is_npu
assert torch.load("{path}", map_location={{"npu:0": "cpu"}})["weight"].device.type == "cpu"
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
import torch.distributed as dist
dist.init_process_group("{backend}", init_method="file://{path}.store", rank=0, world_size=1)
assert dist.get_backend(dist.group.WORLD) in ("hccl", "cpu:gloo,npu:hccl"), dist.get_backend()
t = torch.ones(2, device="cuda")
dist.all_reduce(t)
dist.broadcast(t, 0)
assert t.tolist() == [1, 1] and torch.cuda.get_device_capability("cuda:0") == (0, 0)
dist.destroy_process_group()
print("ok")
"""

# What scripts pass to functions that take a device, in each of the forms "cuda:0" can have.
DEVICES = """
import torch
from torch_npu.contrib import transfer_to_npu
first = torch.device("cuda:0")
for device in (first, "cuda:0", "cuda", 0):
    torch.cuda.set_device(device)
    assert torch.cuda.memory_allocated(device) == torch.npu.memory_allocated(0)
    assert torch.cuda.get_rng_state(device).numel() == 16
    with torch.cuda.device(device):
        assert torch.cuda.current_device() == 0
stream = torch.cuda.Stream(device=first)
assert isinstance(stream, torch.cuda.Stream) and isinstance(torch.npu.current_stream(), torch.cuda.Stream)
assert isinstance(torch.Stream(device="cuda"), torch.Stream)
with torch.random.fork_rng(devices=["cuda:0"]), torch.device("cuda"):
    assert torch.ones(1).is_npu
model = torch.nn.Linear(4, 4).cuda()
compiled = torch.compile(model, backend="aot_eager")
assert torch.equal(compiled(torch.ones(2, 4).cuda()), model(torch.ones(2, 4).cuda()))
print("ok")
"""

MESH = """
import torch, torch.distributed as dist
from torch_npu.contrib import transfer_to_npu
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
dist.init_process_group("nccl", init_method="file://{path}", rank=0, world_size=1)
assert init_device_mesh("cuda", (1,)).device_type == DeviceMesh("cuda", [0]).device_type == "npu"
fully_shard(torch.nn.Linear(4, 4).cuda(), mesh=init_device_mesh("cuda", (1,)))
wrapped = FullyShardedDataParallel(torch.nn.Linear(4, 4).cuda(), device_id=torch.device("cuda", 0))
assert wrapped(torch.ones(2, 4).cuda()).is_npu
assert dist.get_backend(dist.distributed_c10d.new_group(backend="nccl")) == "hccl"
dist.destroy_process_group()
print("ok")
"""


OTHER_FACES = """
import torch, warnings
from torch_npu.contrib import transfer_to_npu
from torch.profiler import ProfilerActivity, profile, schedule

model = torch.nn.Linear(4, 4).cuda()
seen = []
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
             on_trace_ready=lambda prof: seen.append(prof.key_averages().table())) as prof:
    for _ in range(2):
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        prof.step()
assert ProfilerActivity.PrivateUse1 in prof.activities and ProfilerActivity.CUDA not in prof.activities
assert len(seen) == 1 and "aten::addmm" in seen[0]

warnings.simplefilter("ignore")
for kind in (torch.cuda.DoubleTensor, "torch.cuda.HalfTensor"):
    torch.set_default_tensor_type(kind)
    assert torch.ones(2).is_npu
assert torch.ones(2).dtype == torch.float16
torch.set_default_tensor_type(torch.FloatTensor)
assert torch.ones(2).device.type == "cpu" and torch.ones(2).dtype == torch.float32

stream, loader = torch.cuda.Stream(), iter([torch.ones(8, 8).pin_memory() for _ in range(3)])
from torch_cann.sanitizer import StreamSanitizer
with StreamSanitizer() as sanitizer:  # a prefetcher as many scripts have it
    total = 0.0
    for batch in loader:
        with torch.cuda.stream(stream):
            batch = batch.cuda(non_blocking=True).float().sub_(0.5)
        torch.cuda.current_stream().wait_stream(stream)
        batch.record_stream(torch.cuda.current_stream())
        total += (batch @ batch).sum().item()
assert sanitizer.races == [] and total == 3 * 8 * 8 * 8 * 0.25

optimizer = torch.optim.Adam(model.parameters(), capturable=True)
x = torch.ones(2, 4, device="cuda")
optimizer.zero_grad(set_to_none=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
losses = []
for _ in range(3):
    graph.replay()
    losses.append(loss.item())
assert losses[2] < losses[0]
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    assert "Tried to allocate 1024.00 GiB" in str(error)
print("ok")
"""


def test_devices_in_every_form(run_python) -> None:
    assert run_python(DEVICES) == "ok"


def test_meshes_and_sharding(run_python, tmp_path) -> None:
    assert run_python(MESH.format(path=tmp_path / "store")) == "ok"


def test_import_of_transfer_to_npu(run_python, tmp_path) -> None:
    how = "import torch_npu\nfrom torch_npu.contrib import transfer_to_npu"
    assert run_python(SCRIPT.format(how=how, path=tmp_path / "x.pt", backend="nccl")) == "ok"


def test_environment_variable(run_python, tmp_path) -> None:
    code = SCRIPT.format(how="import torch_npu", path=tmp_path / "x.pt", backend="cpu:gloo,cuda:nccl")
    assert run_python(code, TORCH_TRANSFER_TO_NPU="1") == "ok"


def test_a_wrong_value_is_refused(run_python) -> None:
    code = """
import os
os.environ["TORCH_TRANSFER_TO_NPU"] = "yes"
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
try:
    import torch_npu
except ValueError as e:
    print(e)
"""
    assert run_python(code) == "TORCH_TRANSFER_TO_NPU must be 0 or 1, but is 'yes'"


def test_profiler_default_types_prefetcher_and_graph(run_python) -> None:
    assert run_python(OTHER_FACES) == "ok"
