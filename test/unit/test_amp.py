"""Autocast and GradScaler, in both spellings."""

import pickle

import pytest
import torch

npu = torch.npu


def test_supported_dtypes() -> None:
    assert npu.get_amp_supported_dtype() == [torch.float16, torch.bfloat16, torch.float32]
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("npu", dtype=torch.float64):
        assert not torch.is_autocast_enabled("npu")


def test_autocast_spellings_agree() -> None:
    x = torch.randn(4, 4, device="npu")
    with torch.autocast("npu"):
        assert (x @ x).dtype == torch.float16
    with npu.amp.autocast():
        assert (x @ x).dtype == torch.float16 and npu.is_autocast_enabled()
        assert npu.get_autocast_dtype() == torch.float16
    with npu.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with npu.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32
    assert not npu.is_autocast_enabled()


def test_autocast_as_decorator() -> None:
    @npu.amp.autocast(dtype=torch.bfloat16)
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    assert product(torch.ones(2, 2, device="npu")).dtype == torch.bfloat16


def test_float32_autocast_casts_up() -> None:
    half = torch.randn(4, 4, device="npu", dtype=torch.float16)
    with torch.autocast("npu", dtype=torch.float32):
        assert (half @ half).dtype == torch.float32


def test_state_setters() -> None:
    npu.set_autocast_enabled(True)
    try:
        npu.set_autocast_dtype(torch.bfloat16)
        assert npu.is_autocast_enabled() and torch.get_autocast_dtype("npu") == torch.bfloat16
    finally:
        npu.set_autocast_enabled(False)
        npu.set_autocast_dtype(torch.float16)
    with pytest.raises(ValueError, match="torch.int32"):
        npu.set_autocast_dtype(torch.int32)


def test_binary_cross_entropy_is_unsafe_under_autocast() -> None:
    p = torch.full((2,), 0.5, device="npu")
    with torch.autocast("npu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(p, p)


def test_custom_fwd_bwd_of_the_old_spelling() -> None:
    with pytest.warns(FutureWarning, match="device_type='npu'"):
        forward_decorator = npu.amp.custom_fwd(cast_inputs=torch.float32)
    with pytest.warns(FutureWarning, match="device_type='npu'"):

        class Square(torch.autograd.Function):
            @staticmethod
            @forward_decorator
            def forward(ctx, x):
                assert x.dtype == torch.float32 and not torch.is_autocast_enabled("npu")
                ctx.save_for_backward(x)
                return x @ x

            @staticmethod
            @npu.amp.custom_bwd
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad @ x.t() + x.t() @ grad

    x = torch.eye(2, device="npu", dtype=torch.float16, requires_grad=True)
    with torch.autocast("npu"):
        Square.apply(x).sum().backward()
    assert torch.equal(x.grad.float().cpu(), torch.full((2, 2), 2.0))


def _step(scaler: torch.amp.GradScaler, factor: float) -> tuple[float, bool]:
    """One step on a fresh weight; (scale afterwards, whether the weight moved)."""
    weight = torch.nn.Parameter(torch.ones(3, device="npu"))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler.scale(weight.sum() * factor).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), not torch.equal(weight, torch.ones(3, device="npu"))


@pytest.mark.parametrize("make", [npu.amp.GradScaler, lambda **k: torch.amp.GradScaler("npu", **k)])
def test_grad_scaler_backs_off_and_grows(make) -> None:
    scaler = make(init_scale=1024.0, growth_interval=2)
    assert isinstance(scaler, torch.amp.GradScaler)
    assert _step(scaler, float("inf")) == (512.0, False)
    assert _step(scaler, 1.0) == (512.0, True)
    assert _step(scaler, 1.0) == (1024.0, True)
    assert _step(scaler, float("nan")) == (512.0, False)


def test_a_static_scale_skips_steps_but_stays() -> None:
    scaler = npu.amp.GradScaler(init_scale=64.0, growth_interval=1, dynamic=False)
    assert _step(scaler, 1.0) == (64.0, True)
    assert _step(scaler, float("inf")) == (64.0, False)
    assert _step(scaler, 1.0) == (64.0, True)
    scaler.update(8.0)
    assert scaler.get_scale() == 8.0


def test_scaler_state_moves_between_the_spellings() -> None:
    ours = npu.amp.GradScaler(init_scale=256.0, dynamic=False)
    theirs = torch.amp.GradScaler("npu")
    theirs.load_state_dict(ours.state_dict())
    assert theirs.get_scale() == 256.0
    other = npu.amp.GradScaler()
    other.load_state_dict(theirs.state_dict())
    assert other.get_scale() == 256.0 and other._dynamic
    other.load_state_dict(ours.state_dict())
    assert not other._dynamic
    assert pickle.loads(pickle.dumps(ours)).get_scale() == 256.0
    assert npu.amp.GradScaler(enabled=False).state_dict() == {}


def test_overflow_is_found_in_values() -> None:
    check = npu.utils.npu_check_overflow
    assert npu.utils.is_support_inf_nan()
    assert check(torch.tensor([1.0, float("inf")], device="npu")) and check(float("nan"))
    assert not check(torch.full((2,), 60000.0, dtype=torch.float16, device="npu")) and not check(1.0)
