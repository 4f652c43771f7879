"""Dry runs of one process: memory without memory, shapes without arithmetic, and values that stay honest."""

import json

import pytest

_GPT = """
    import json, torch, torch_npu
    import torch.nn as nn, torch.nn.functional as F
    torch.manual_seed(0)
    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
            # written out, so that the CPU's kernel and the card's keep the same tensors
            y = torch.softmax(q @ k.transpose(-1, -2) / (d // 4) ** 0.5, -1) @ v
            x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.n2(x))))
    class GPT(nn.Module):
        def __init__(self, v, l, d, t):
            super().__init__()
            self.e, self.p = nn.Embedding(v, d), nn.Embedding(t, d)
            self.b, self.u = nn.ModuleList(Block(d) for _ in range(l)), nn.Linear(d, v, bias=False)
        def forward(self, i):
            x = self.e(i) + self.p(torch.arange(i.shape[1], device=i.device))
            for b in self.b: x = b(x)
            return self.u(x)
    """


@pytest.mark.parametrize("optimizer", ["foreach=True", "foreach=False", "fused=True"])
def test_peak_memory_is_that_of_a_real_run(run_code, optimizer: str) -> None:
    code = (
        _GPT
        + f"""
    m = GPT(1000, 2, 256, 128).npu()
    o = torch.optim.AdamW(m.parameters(), {optimizer})
    for _ in range(2):
        x = torch.randint(0, 1000, (4, 128)).npu()
        # in its parts, as the card's operators are: a real run here has one kernel for both, which keeps less
        loss = F.nll_loss(F.log_softmax(m(x).view(-1, 1000), -1), x.view(-1)); loss.backward(); o.step(); o.zero_grad()
    print(json.dumps([torch.npu.max_memory_allocated(), torch.npu.max_memory_reserved()]))
    """
    )
    real = json.loads(run_code(code))
    dry = json.loads(run_code(code, TORCH_CANN_DRY_RUN="1"))
    assert dry[0] == pytest.approx(real[0], rel=0.01)
    assert dry[1] == pytest.approx(real[1], rel=0.05)


def test_a_model_of_forty_gigabytes_takes_none(run_code) -> None:
    code = (
        _GPT
        + """
    def resident_peak():  # of this program alone: getrusage's peak is inherited from the process that started it
        return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    with torch.device("npu"): m = GPT(50000, 14, 6144, 1024)
    loss = m(torch.zeros(1, 1024, dtype=torch.long, device="npu")).float().mean(); loss.backward()
    print(json.dumps([torch.npu.max_memory_allocated(), resident_peak()]))
    """
    )
    allocated, resident = json.loads(run_code(code, TORCH_CANN_DRY_RUN="1"))
    assert allocated > 40 * 2**30
    assert resident < 700 * 2**20


def test_a_full_card_raises_the_usual_error(run_code) -> None:
    code = """
        import torch, torch_npu
        try:
            for _ in range(100): kept = [torch.empty(1 << 30, device="npu") for _ in range(20)]
        except torch.OutOfMemoryError as error: print("60.96 GiB total capacity" in str(error))
        """
    assert run_code(code, TORCH_CANN_DRY_RUN="1") == "True"


def test_shapes_dtypes_and_strides_are_the_operators_own(run_code) -> None:
    code = """
        import torch, torch_npu
        x = torch.empty(4, 6, 8, device="npu")
        results = [x.transpose(0, 2) + 1, x.sum((0, 2)), x[:, 1:3].contiguous(), torch.cat([x, x], 1), x.to(torch.bfloat16),
                   x.max(1).values, x.view(24, 8).t() @ x.view(24, 8), x > 0, torch.nn.functional.pad(x, (1, 2)), x.half().float()]
        print([(tuple(r.shape), str(r.dtype), r.stride()) for r in results])
        """
    assert run_code(code) == run_code(code, TORCH_CANN_DRY_RUN="1")


def test_small_values_that_the_host_computed_stay_known(run_code) -> None:
    code = """
        import torch, torch_npu
        step = torch.zeros((), device="npu"); step += 1; step.mul_(3)
        lengths = torch.tensor([3, 5, 2]).npu()
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        print(step.item(), starts.tolist(), (lengths > 2).nonzero().flatten().tolist(), lengths[lengths > 2].shape[0],
              torch.arange(4, device="npu").flip(0).cpu().tolist(), bool((starts[-1] == 10).all()))
        """
    assert run_code(code) == run_code(code, TORCH_CANN_DRY_RUN="1")


def test_touching_what_was_computed_from_the_unknown_forgets_it(run_code) -> None:
    code = """
        import torch, torch_npu
        from torch_cann import _C
        known = torch.ones(4, device="npu")
        before = _C._sim.values_known(known)
        known.add_(torch.randn(4, device="npu"))
        print(before, _C._sim.values_known(known), _C._sim.values_known(torch.ones(4, device="npu") + known))
        """
    assert run_code(code, TORCH_CANN_DRY_RUN="1") == "True False False"


def test_an_unknown_number_is_not_guessed(run_code) -> None:
    code = """
        import torch, torch_npu
        loss = torch.randn((), device="npu")
        try: loss.item()
        except RuntimeError as error: print("which nobody computed" in str(error))
        """
    assert run_code(code, TORCH_CANN_DRY_RUN="1") == "True"
