"""LSTM and GRU: whole layers by oneDNN as on the CPU device, cells by kernels of their own; values and gradients.

The measure is float64: a result may be off by twice what the CPU device's result of the same type is off, plus a few
units in the last place of the largest value.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_MODULES = {
    "lstm": (nn.LSTM, {}),
    "lstm without biases": (nn.LSTM, {"bias": False}),
    "lstm of two layers both ways": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "lstm of batches": (nn.LSTM, {"batch_first": True}),
    "lstm with projections": (nn.LSTM, {"proj_size": 3}),
    "gru": (nn.GRU, {}),
    "gru without biases": (nn.GRU, {"bias": False}),
    "gru of two layers both ways": (nn.GRU, {"num_layers": 2, "bidirectional": True}),
}


def _run(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, last states, and the gradients of the input and of all parameters, on the CPU."""
    x = x.detach().requires_grad_()
    output, states = model(x)
    states = states if isinstance(states, tuple) else (states,)
    loss = output.double().square().sum() + sum(state.double().sin().sum() for state in states)
    gradients = torch.autograd.grad(loss, [x, *model.parameters()])
    return [tensor.detach().cpu() for tensor in (output, *states, *gradients)]


def _check(model: nn.Module, x: torch.Tensor) -> None:
    exact = _run(copy.deepcopy(model).double(), x.double())
    cpu = _run(model, x)
    npu = _run(copy.deepcopy(model).npu(), x.npu())
    for ours, theirs, want in zip(npu, cpu, exact, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        error, cpu_error = ((result.double() - want).abs().max() for result in (ours, theirs))
        slack = 4 * torch.finfo(ours.dtype).eps * want.abs().max().clamp(min=1e-30)
        assert error <= 2 * cpu_error + slack, f"error {error:.3g}, the CPU's {cpu_error:.3g}"


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("hidden", [5, 37])
@pytest.mark.parametrize("name", _MODULES)
def test_layers(name: str, hidden: int, dtype: torch.dtype) -> None:
    kind, options = _MODULES[name]
    torch.manual_seed(0)
    _check(kind(7, hidden, dtype=dtype, **options), torch.randn(4, 3, 7, dtype=dtype))


def test_a_float32_lstm_has_the_cpus_bits() -> None:
    torch.manual_seed(0)
    model, x = nn.LSTM(16, 64, num_layers=2), torch.randn(12, 4, 16)
    for ours, theirs in zip(_run(copy.deepcopy(model).npu(), x.npu()), _run(model, x), strict=True):
        assert torch.equal(ours, theirs)


def test_an_lstm_in_eval_is_differentiable() -> None:
    torch.manual_seed(0)
    model, x = nn.LSTM(7, 9, num_layers=2, dropout=0.5).eval(), torch.randn(4, 3, 7)
    for ours, theirs in zip(_run(copy.deepcopy(model).npu(), x.npu()), _run(model, x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dropout_between_layers_is_drawn_from_the_devices_generator() -> None:
    model, x = nn.LSTM(7, 9, num_layers=2, dropout=0.5).npu(), torch.randn(4, 3, 7).npu()
    torch.npu.manual_seed(3)
    first, other = model(x)[0], model(x)[0]
    torch.npu.manual_seed(3)
    assert torch.equal(model(x)[0], first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind(7, 9, bidirectional=True)
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 7), torch.randn(3, 7), torch.randn(1, 7)])
    theirs, ours = model(packed)[0].data, copy.deepcopy(model).npu()(packed.to("npu"))[0].data
    torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("transposed", [False, True])
def test_cells_of_states_with_gaps(kind: type[nn.Module], transposed: bool) -> None:
    torch.manual_seed(0)
    cell, x, state = kind(7, 9), torch.randn(4, 7), torch.randn(9, 4).t() if transposed else torch.randn(4, 18)[:, ::2]

    def step(device: str) -> torch.Tensor:
        h = state.to(device)
        result = copy.deepcopy(cell).to(device)(x.to(device), (h, h) if kind is nn.LSTMCell else h)
        return result[0].cpu() if isinstance(result, tuple) else result.cpu()

    torch.testing.assert_close(step("npu"), step("cpu"))


def test_autocast_gives_its_type() -> None:
    model = nn.LSTM(7, 9).npu()
    with torch.autocast("npu", dtype=torch.bfloat16):
        output, _ = model(torch.randn(4, 3, 7).npu())
    assert output.dtype == torch.bfloat16
    output.float().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_wrong_size_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected 7, got 8"):
        nn.LSTM(7, 9).npu()(torch.randn(4, 3, 8).npu())
    with pytest.raises(RuntimeError):
        torch.lstm(
            torch.randn(4, 3, 7).npu(),
            [torch.zeros(1, 3, 9).npu()] * 2,
            [torch.zeros(36, 7).npu(), torch.zeros(36, 8).npu()],
            False,
            1,
            0.0,
            False,
            False,
            False,
        )
