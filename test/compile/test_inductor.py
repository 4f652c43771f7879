"""What generated code does with memory, views, random numbers, the clock; and what happens without a compiler."""

import re

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code


def test_views_and_mutation() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        y[1:].add_(x[0])
        return x.t(), y[:, ::2], (x + y).relu().sum(0)

    given = [torch.randn(4, 6, device="npu") for _ in range(2)]
    ours, theirs = [g.clone() for g in given], [g.clone() for g in given]
    got, want = torch.compile(function, fullgraph=True)(*ours), function(*theirs)
    torch.testing.assert_close([*got, *ours], [*want, *theirs])
    assert got[0].untyped_storage().data_ptr() == ours[0].untyped_storage().data_ptr()
    assert got[0].stride() == want[0].stride() and got[1]._base is not None


def test_random_numbers_come_from_the_cards_generator() -> None:
    @torch.compile
    def draw(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.nn.functional.dropout(x, 0.5)

    x = torch.ones(1000, device="npu")
    torch.npu.manual_seed(7)
    first, second = draw(x), draw(x)
    assert not torch.equal(first, second)
    torch.npu.manual_seed(7)
    assert torch.equal(draw(x), first)
    assert 400 < (first > 1).sum() < 600


def test_a_fused_chain_needs_less_memory() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return ((x.sin() + 1) * x.cos() - x.tanh()).sum(1)

    def peak(function) -> int:
        before = torch.npu.memory_allocated()
        torch.npu.reset_peak_memory_stats()
        function(x)
        return torch.npu.max_memory_allocated() - before

    x = torch.randn(256, 1024, device="npu")
    compiled = torch.compile(chain)
    torch.testing.assert_close(compiled(x), chain(x))
    assert peak(chain) >= 2 * x.nbytes
    assert peak(compiled) < x.nbytes // 4


def test_loops_of_a_concatenation_are_those_of_the_cpu() -> None:
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    given = torch.randn(4, 16, 64), torch.randn(16, 64), torch.randn(16, 64)

    def loops(device: str) -> list[str]:
        got, (code,) = run_and_get_code(torch.compile(rotate, fullgraph=True), *(t.to(device) for t in given))
        torch.testing.assert_close(got.cpu(), rotate(*given))
        return re.findall(r'extern "C".*?\'\'\'', code, re.DOTALL)

    assert loops("npu") == loops("cpu") != []


@pytest.mark.parametrize("masked", [False, True])
def test_attention_written_out_becomes_the_fused_kernel(masked: bool) -> None:
    mask = torch.randn(16, 16, device="npu") if masked else 0

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / 8**0.5
        return torch.softmax(scores + mask if masked else scores, -1) @ v

    def with_gradients(function) -> list[torch.Tensor]:
        leaves = [g.clone().requires_grad_() for g in given]
        out = function(*leaves)
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    given = [torch.randn(2, 3, 16, 8, device="npu") for _ in range(3)]
    counters.clear()
    # The pattern is looked for when code is generated, not when it comes from the cache.
    with torch._inductor.config.patch(force_disable_caches=True):
        got = with_gradients(torch.compile(attention, fullgraph=True))
    assert counters["inductor"]["fuse_attention"] >= 1
    torch.testing.assert_close(got, with_gradients(attention), rtol=1e-4, atol=1e-5)


def test_reduce_overhead_and_graphs() -> None:
    compiled = torch.compile(lambda x: (x + 1).relu(), mode="reduce-overhead")
    x = torch.randn(8, device="npu")
    first = compiled(x)
    assert torch.equal(compiled(-x), (1 - x).relu()) and torch.equal(first, (x + 1).relu())
    torch.compiler.reset()
    assert torch.equal(torch.compile(lambda x: (x + 1).relu(), backend="npu")(x), first)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = compiled(x)
    x.zero_()
    graph.replay()
    assert torch.equal(y, torch.ones_like(x))


def test_a_wrapper_in_cpp_is_refused_by_name() -> None:
    compiled = torch.compile(lambda x: x.sin(), options={"cpp_wrapper": True})
    with pytest.raises(Exception, match="NotImplementedError: cpp_wrapper"):
        compiled(torch.ones(3, device="npu"))


_COMPILED = """
import torch, torch_npu
x = torch.randn(64, 64, device="npu")
function = torch.compile(lambda x: (x @ x).relu() * 2)
"""


def test_no_compiler_is_a_clear_error(run_python, tmp_path) -> None:
    code = f"""{_COMPILED}
try:
    function(x)
except Exception as error:
    print("name it in the environment variable CXX" in str(error))
"""
    assert run_python(code, CXX="/nonexistent/g++", TORCHINDUCTOR_CACHE_DIR=str(tmp_path)) == "True"


@pytest.mark.parametrize("dry", ["0", "1"])
def test_the_clock_sees_generated_kernels(run_python, dry: str) -> None:
    code = f"""{_COMPILED}
from torch_cann import _C
function(x)
before = len(_C._sim.rows()), _C._sim.now()
torch.npu.synchronize()
names = [row[0] for row in _C._sim.rows()]
print(any(name.startswith("cpp_fused") for name in names), any(name.startswith("mm") for name in names))
"""
    assert run_python(code, TORCH_CANN_SIMULATE="1", TORCH_CANN_DRY_RUN=dry) == "True True"
