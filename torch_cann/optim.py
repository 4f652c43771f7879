"""torch_npu.optim: the optimizers that hardware runs as few large kernels.

Those that PyTorch has too are PyTorch's, with its list kernels (``foreach``), so results and state are the same and
checkpoints can be exchanged. The others follow the formulas of their papers.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedAdamP",
    "NpuFusedAdamW",
    "NpuFusedBertAdam",
    "NpuFusedLamb",
    "NpuFusedOptimizerBase",
    "NpuFusedRMSprop",
    "NpuFusedRMSpropTF",
    "NpuFusedSGD",
]

_Betas = tuple[float, float]


def _check(kind: type, **limits: tuple[float, float, float]) -> None:
    """Raises ValueError for a value outside its limits: name = (value, least, end), the end not included."""
    for name, (value, least, end) in limits.items():
        if not least <= value < end:
            raise ValueError(
                f"{kind.__name__}: {name} must be at least {least} and below {end}, but is {value}"
                + pta_error(ErrCode.VALUE)
            )


_INF = math.inf


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    """What all of them share. A subclass without a step() of its own defines ``_update(parameter, state, group)``."""

    is_npu_fused_optimizer = True

    def __init__(self, params: Iterable[Any], default: dict[str, Any]) -> None:
        super().__init__(params, default)

    def _with_gradients(self) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if parameter.grad.is_sparse:
                        raise RuntimeError(
                            f"{type(self).__name__} does not support sparse gradients" + pta_error(ErrCode.PARAM)
                        )
                    yield parameter, group

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Scales all gradients so that their common norm is at most ``max_norm``; returns what it was."""
        return torch.nn.utils.clip_grad_norm_([p for p, _ in self._with_gradients()], max_norm, norm_type)

    def _before_update(self) -> None:
        """Looks at all gradients before the first parameter changes."""

    def _update(self, parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines neither step() nor _update()")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters; returns what ``closure`` returned, which is called first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._before_update()
        for parameter, group in self._with_gradients():
            state = self.state[parameter]
            state["step"] = state.get("step", 0) + 1
            self._update(parameter, state, group)
        return loss


# --- those of PyTorch -------------------------------------------------------------------------------------------------


class NpuFusedSGD(NpuFusedOptimizerBase, torch.optim.SGD):
    """torch.optim.SGD."""

    step = torch.optim.SGD.step

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        torch.optim.SGD.__init__(self, params, lr, momentum, dampening, weight_decay, nesterov, foreach=True)


class NpuFusedAdadelta(NpuFusedOptimizerBase, torch.optim.Adadelta):
    """torch.optim.Adadelta."""

    step = torch.optim.Adadelta.step

    def __init__(
        self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0
    ) -> None:
        torch.optim.Adadelta.__init__(self, params, lr, rho, eps, weight_decay, foreach=True)


class NpuFusedAdam(NpuFusedOptimizerBase, torch.optim.Adam):
    """torch.optim.Adam."""

    step = torch.optim.Adam.step

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: _Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
    ) -> None:
        torch.optim.Adam.__init__(self, params, lr, betas, eps, weight_decay, amsgrad, foreach=True)


class NpuFusedAdamW(NpuFusedOptimizerBase, torch.optim.AdamW):
    """torch.optim.AdamW."""

    step = torch.optim.AdamW.step

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: _Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        torch.optim.AdamW.__init__(self, params, lr, betas, eps, weight_decay, amsgrad, foreach=True)


class NpuFusedRMSprop(NpuFusedOptimizerBase, torch.optim.RMSprop):
    """torch.optim.RMSprop."""

    step = torch.optim.RMSprop.step

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
    ) -> None:
        torch.optim.RMSprop.__init__(self, params, lr, alpha, eps, weight_decay, momentum, centered, foreach=True)


# --- others -----------------------------------------------------------------------------------------------------------


def _moments(parameter: torch.Tensor, state: dict[str, Any], grad: torch.Tensor, betas: _Betas) -> tuple[Any, Any]:
    """Running mean and running mean of squares of the gradient, kept in ``state``, with this gradient."""
    for name in ("exp_avg", "exp_avg_sq"):
        if name not in state:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.lerp_(grad, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    return mean, square


class NpuFusedRMSpropTF(NpuFusedOptimizerBase):
    """RMSprop as in TensorFlow: the mean of squares starts at 1, and eps is inside the root.

    Args:
        decoupled_decay: weight decay shrinks the weights instead of adding to the gradient.
        lr_in_momentum: the learning rate is inside the momentum buffer.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.9,
        eps: float = 1e-10,
        weight_decay: float = 0,
        momentum: float = 0.0,
        centered: bool = False,
        decoupled_decay: bool = False,
        lr_in_momentum: bool = True,
    ) -> None:
        _check(type(self), lr=(lr, 0, _INF), alpha=(alpha, 0, _INF), eps=(eps, 0, _INF))
        _check(type(self), momentum=(momentum, 0, _INF), weight_decay=(weight_decay, 0, _INF))
        super().__init__(
            params,
            dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered,
                 decoupled_decay=decoupled_decay, lr_in_momentum=lr_in_momentum),
        )

    def _update(self, parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        grad, rate = parameter.grad, group["lr"]
        if "square_avg" not in state:
            state["square_avg"] = torch.ones_like(parameter)
        if group["weight_decay"] and group["decoupled_decay"]:
            parameter.mul_(1 - rate * group["weight_decay"])
        elif group["weight_decay"]:
            grad = grad.add(parameter, alpha=group["weight_decay"])
        square = state["square_avg"].lerp_(grad.square(), 1 - group["alpha"])
        if group["centered"]:
            mean = state.setdefault("grad_avg", torch.zeros_like(parameter)).lerp_(grad, 1 - group["alpha"])
            square = square - mean.square()
        root = (square + group["eps"]).sqrt_()
        if group["momentum"] == 0:
            parameter.addcdiv_(grad, root, value=-rate)
            return
        buffer = state.setdefault("momentum_buffer", torch.zeros_like(parameter)).mul_(group["momentum"])
        inside = group["lr_in_momentum"]
        buffer.addcdiv_(grad, root, value=rate if inside else 1.0)
        parameter.add_(buffer, alpha=-1.0 if inside else -rate)


class NpuFusedAdamP(NpuFusedOptimizerBase):
    """AdamP (Heo et al., 2021): Adam without the part of a step that only changes the norm of scale-invariant weights.

    Args:
        delta: how near to a right angle weights and gradient must be for the weights to count as scale-invariant.
        wd_ratio: factor of the weight decay of those.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: _Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        nesterov: bool = False,
    ) -> None:
        _check(type(self), lr=(lr, 0, _INF), eps=(eps, 0, _INF), beta1=(betas[0], 0, 1), beta2=(betas[1], 0, 1))
        super().__init__(
            params,
            dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, delta=delta, wd_ratio=wd_ratio,
                 nesterov=nesterov),
        )

    @staticmethod
    def _projected(weights: torch.Tensor, step: torch.Tensor, group: dict[str, Any]) -> tuple[torch.Tensor, float]:
        """``step`` without its part along the weights, and the factor of weight decay."""
        if weights.dim() < 2:
            return step, 1.0
        for shape in ((weights.shape[0], -1), (1, -1)):  # invariant by channel, or as a layer
            rows, grad = weights.reshape(shape), weights.grad.reshape(shape)
            cosine = torch.nn.functional.cosine_similarity(grad, rows, dim=1, eps=group["eps"]).abs()
            if cosine.max() < group["delta"] / math.sqrt(rows.shape[1]):
                unit = rows / rows.norm(dim=1, keepdim=True).add_(group["eps"])
                flat = step.reshape(shape)
                return (flat - unit * (unit * flat).sum(1, keepdim=True)).view_as(step), group["wd_ratio"]
        return step, 1.0

    def _update(self, parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        mean, square = _moments(parameter, state, parameter.grad, group["betas"])
        root = (square.sqrt() / math.sqrt(1 - beta2 ** state["step"])).add_(group["eps"])
        numerator = mean.lerp(parameter.grad, 1 - beta1) if group["nesterov"] else mean
        step, decay = self._projected(parameter, numerator / root, group)
        if group["weight_decay"]:
            parameter.mul_(1 - group["lr"] * group["weight_decay"] * decay)
        parameter.add_(step, alpha=-group["lr"] / (1 - beta1 ** state["step"]))


class NpuFusedLamb(NpuFusedOptimizerBase):
    """LAMB (You et al., 2020): Adam's step, without bias correction, scaled per tensor by |weights| / |step|.

    Args:
        adam: leave the scaling out.
        use_global_grad_norm: divide all gradients by their common norm where that is above 1.
    """

    _MAX_WEIGHT_NORM = 10.0

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: _Betas = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        adam: bool = False,
        use_global_grad_norm: bool = False,
    ) -> None:
        _check(type(self), lr=(lr, 0, _INF), eps=(eps, 0, _INF), beta1=(betas[0], 0, 1), beta2=(betas[1], 0, 1))
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.adam, self.use_global_grad_norm = adam, use_global_grad_norm
        self._divisor: torch.Tensor | float = 1.0

    def _before_update(self) -> None:
        norms = [p.grad.norm() for p, _ in self._with_gradients()] if self.use_global_grad_norm else []
        self._divisor = torch.stack(norms).norm().clamp(min=1.0) if norms else 1.0

    def _update(self, parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        mean, square = _moments(parameter, state, parameter.grad / self._divisor, group["betas"])
        step = mean / square.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            step.add_(parameter, alpha=group["weight_decay"])
        if not self.adam:
            weight_norm = parameter.norm().clamp(max=self._MAX_WEIGHT_NORM)
            step_norm = step.norm()
            trust = torch.where((weight_norm > 0) & (step_norm > 0), weight_norm / step_norm, 1.0)
            step.mul_(trust)
        parameter.add_(step, alpha=-group["lr"])


def _warmup_factor(schedule: str, progress: float, warmup: float) -> float:
    """Factor of the learning rate; ``progress`` and ``warmup`` are parts of all steps, 0 to 1."""
    if progress < warmup:
        return progress / warmup
    if schedule == "warmup_linear":
        return max((progress - 1.0) / (warmup - 1.0), 0.0)
    if schedule == "warmup_cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0


class NpuFusedBertAdam(NpuFusedOptimizerBase):
    """The Adam of the first BERT: no bias correction, weight decay beside the step, gradients clipped tensor by tensor.

    Args:
        warmup: part of ``t_total`` in which the learning rate grows; -1 for none.
        t_total: steps of the whole training; -1 keeps the learning rate.
        schedule: "warmup_linear", "warmup_cosine" or "warmup_constant", what comes after warm-up.
        max_grad_norm: -1 for no clipping.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        warmup: float = -1,
        t_total: int = -1,
        schedule: str = "warmup_linear",
        b1: float = 0.9,
        b2: float = 0.999,
        e: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
    ) -> None:
        _check(type(self), lr=(lr, 0, _INF), b1=(b1, 0, 1), b2=(b2, 0, 1), e=(e, 0, _INF))
        if schedule not in ("warmup_linear", "warmup_cosine", "warmup_constant"):
            raise ValueError(f"Invalid schedule parameter: {schedule!r}" + pta_error(ErrCode.VALUE))
        if warmup != -1 and not 0 <= warmup < 1:
            raise ValueError(
                f"warmup must be -1, or at least 0 and below 1, but is {warmup}" + pta_error(ErrCode.VALUE)
            )
        super().__init__(
            params,
            dict(lr=lr, schedule=schedule, warmup=warmup, t_total=t_total, b1=b1, b2=b2, e=e,
                 weight_decay=weight_decay, max_grad_norm=max_grad_norm),
        )

    def _update(self, parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if group["max_grad_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(parameter, group["max_grad_norm"])
        mean, square = _moments(parameter, state, parameter.grad, (group["b1"], group["b2"]))
        step = mean / square.sqrt().add_(group["e"])
        if group["weight_decay"] > 0:
            step.add_(parameter, alpha=group["weight_decay"])
        rate = group["lr"]
        if group["t_total"] != -1:
            rate *= _warmup_factor(group["schedule"], (state["step"] - 1) / group["t_total"], group["warmup"])
        parameter.add_(step, alpha=-rate)
