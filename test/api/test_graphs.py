"""NPU graphs: capture, replay on the same memory, and what cannot be captured."""

import copy

import pytest
import torch
import torch_npu  # noqa: F401


def _mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).npu()


def test_replay_computes_anew_from_the_inputs_memory() -> None:
    graph, x = torch.npu.NPUGraph(), torch.ones(4, device="npu")
    with torch.npu.graph(graph):
        assert torch.npu.is_current_stream_capturing()
        y = (x * 2).view(2, 2)
        z = y + 1
        x_plus = x.add_(1)
    assert not torch.npu.is_current_stream_capturing()
    address = z.data_ptr()
    x.copy_(torch.full((4,), 10.0))
    graph.replay()
    assert y.tolist() == [[20, 20], [20, 20]] and z.tolist() == [[21, 21], [21, 21]] and x_plus.tolist() == [11] * 4
    assert z.data_ptr() == address


def test_a_captured_training_step_is_the_eager_one() -> None:
    captured, eager = _mlp(), _mlp()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (captured, eager)]
    data = [torch.randn(16, 8, device="npu") for _ in range(4)]

    def step(model, optimizer, x):
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss

    static = data[0].clone()
    step(captured, optimizers[0], static)  # momentum buffers and gradients must be there before
    step(eager, optimizers[1], data[0])
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):  # runs the step once, as it records it
        loss = step(captured, optimizers[0], static)
    step(eager, optimizers[1], data[0])
    for x in data[1:]:
        static.copy_(x)
        graph.replay()
        assert torch.equal(loss, step(eager, optimizers[1], x))
    for a, b in zip(captured.parameters(), eager.parameters(), strict=True):
        assert torch.equal(a, b)


def test_random_numbers_go_on() -> None:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x = torch.rand(100, device="npu")
    graph.replay()
    first = x.clone()
    graph.replay()
    assert not torch.equal(first, x)


@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0]])
def test_reading_a_value_is_refused_and_the_capture_dropped(read) -> None:
    graph, x = torch.npu.NPUGraph(), torch.ones(4, device="npu")
    with pytest.raises(RuntimeError, match="not permitted while a NPU graph is captured"), torch.npu.graph(graph):
        read(x)
    assert not torch.npu.is_current_stream_capturing()
    assert torch.npu.current_stream() == torch.npu.default_stream()
    with pytest.raises(RuntimeError, match="before a capture has ended"):
        graph.replay()
    assert read(x) is not None


def test_wrong_order_of_calls() -> None:
    graph = torch.npu.NPUGraph()
    for call, message in (
        (graph.replay, "before a capture has ended"),
        (graph.pool, "before a capture has begun"),
        (graph.capture_end, "without capture_begin"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    with torch.npu.graph(graph, pool=(0, 5), stream=torch.npu.Stream(), capture_error_mode="relaxed"):
        with pytest.raises(RuntimeError, match="captured in this thread already"):
            torch.npu.NPUGraph().capture_begin()
    assert graph.pool() == (0, 5)
    with pytest.raises(RuntimeError, match="holds a capture already"):
        graph.capture_begin()
    graph.reset()
    with pytest.raises(RuntimeError, match="capture_error_mode must be"):
        graph.capture_begin(capture_error_mode="wild")
    with pytest.raises(NotImplementedError, match="NPUGraph.update"):
        graph.update(cpu_update_input=[])


def test_pools_scopes_and_dump(tmp_path) -> None:
    assert torch.npu.graph_pool_handle() != torch.npu.graph_pool_handle()
    graph, x = torch.npu.NPUGraph(), torch.ones(4, device="npu")
    graph.enable_debug_mode()
    with torch.npu.graph(graph, pool=torch.npu.graph_pool_handle()):
        torch.npu.super_kernel_scope_begin("scope")
        x + 1
        torch.npu.super_kernel_scope_end("scope")
    graph.debug_dump(str(tmp_path / "graph"))
    assert (tmp_path / "graph").read_text() == "aten.add.Tensor\n"


def test_handlers_are_classes_that_can_be_registered() -> None:
    @torch.npu.register_npu_graph_handler(["npu::op_a", "npu::op_b"])
    class Handler(torch.npu.NpuGraphOpHandler):
        pass

    assert torch.npu.graphs._handlers["npu::op_b"] is Handler


def test_graphed_callables() -> None:
    model = _mlp()
    reference = copy.deepcopy(model)
    graphed = torch.npu.make_graphed_callables(model, (torch.randn(16, 8, device="npu"),))
    for _ in range(2):
        x = torch.randn(16, 8, device="npu")
        for m in (graphed, reference):
            m.zero_grad()
            m(x).square().sum().backward()
        assert torch.equal(graphed(x), reference(x))
        for a, b in zip(graphed.parameters(), reference.parameters(), strict=True):
            assert torch.equal(a.grad, b.grad)
    graphed.eval()
    assert graphed(torch.randn(3, 8, device="npu")).shape == (3, 4)


def test_graphed_functions() -> None:
    shape = (torch.randn(4, device="npu", requires_grad=True),)
    double, square = torch.npu.make_graphed_callables((lambda x: x * 2, lambda x: x * x), (shape, shape))
    x = torch.full((4,), 3.0, device="npu", requires_grad=True)
    (double(x) + square(x)).sum().backward()
    assert x.grad.tolist() == [8.0] * 4
    with pytest.raises(TypeError, match="must be tensors only"):
        torch.npu.make_graphed_callables(lambda x: x, (1,))
