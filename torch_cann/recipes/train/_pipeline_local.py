"""Runs a pipeline over the cards of one process."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from torch_cann.recipes.train._card_links import Arriving, CardLinks
from torch_cann.recipes.train._pipeline_order import BACKWARD, FORWARD, INPUT_GRADIENT, order
from torch_cann.recipes.train._pipeline_split import as_tuple, named_tensors


class LocalStage:
    """One stage on its card.

    A tensor that an earlier stage on another card holds too (tied weights) lives there; here a copy is made for each
    step, whose gradient goes back.
    """

    def __init__(
        self, module: nn.Module, device: torch.device, placed: dict[torch.Tensor, torch.device], recompute: bool
    ):
        self.module, self.device, self._recompute = module, device, recompute
        self._borrowed: dict[str, torch.Tensor] = {}
        for name, tensor in named_tensors(module).items():
            home = placed.setdefault(tensor, device)
            if home != device:
                self._borrowed[name] = tensor
        self._move(placed)
        self._own = [p for name, p in module.named_parameters() if name not in self._borrowed and p.requires_grad]
        self.copies: dict[str, torch.Tensor] = {}

    def _move(self, placed: dict[torch.Tensor, torch.device]) -> None:
        for prefix, inner in self.module.named_modules(remove_duplicate=False):
            start = prefix + "." if prefix else ""
            for name, parameter in inner.named_parameters(recurse=False):
                if start + name not in self._borrowed:
                    parameter.data = parameter.data.to(self.device)
                    if parameter.grad is not None:
                        parameter.grad = parameter.grad.to(self.device)
            for name, buffer in inner.named_buffers(recurse=False):
                if start + name not in self._borrowed:
                    inner._buffers[name] = buffer.to(self.device)
                    placed[inner._buffers[name]] = self.device

    def begin(self) -> None:
        """Copies the borrowed tensors as they are now."""
        copies: dict[int, torch.Tensor] = {}
        for tensor in self._borrowed.values():
            if id(tensor) not in copies:
                copies[id(tensor)] = tensor.detach().to(self.device).requires_grad_(tensor.requires_grad)
        self.copies = {name: copies[id(tensor)] for name, tensor in self._borrowed.items()}

    def end(self) -> None:
        """Adds the copies' gradients to their owners'."""
        for name, tensor in self._borrowed.items():
            grad = self.copies[name].grad
            if grad is not None:
                grad = grad.to(tensor.device)
                tensor.grad = grad if tensor.grad is None else tensor.grad.add_(grad)
                call_hooks(tensor)
                self.copies[name].grad = None  # another name may have the same copy
        self.copies = {}

    def weights(self) -> list[torch.Tensor]:
        copies = {id(copy): copy for copy in self.copies.values() if copy.requires_grad}
        return [*self._own, *copies.values()]

    def __call__(self, *inputs: Any) -> Any:
        if self._recompute and torch.is_grad_enabled():
            return checkpoint(self._run, *inputs, use_reentrant=False)
        return self._run(*inputs)

    def _run(self, *inputs: Any) -> Any:
        if not self.copies:
            return self.module(*inputs)
        return functional_call(self.module, self.copies, inputs)


def moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def call_hooks(weight: torch.Tensor) -> None:
    """Backward calls these when it adds to a gradient; who adds to one otherwise must, or a reducer misses it."""
    for hook in (weight._post_accumulate_grad_hooks or {}).values():
        hook(weight)


class LocalPipeline:
    """Stages over the cards of this process.

    Args:
        stages: of split_model, in order.
        devices: a card for each of ``len(stages) / chunks`` places in the pipeline.
        schedule: one of SCHEDULES.
        micro_batches: parts of a batch.
        recompute: forward again in backward instead of holding activations.
    """

    def __init__(
        self,
        stages: list[nn.Module],
        devices: list[torch.device],
        schedule: str,
        micro_batches: int,
        recompute: bool,
    ):
        placed: dict[torch.Tensor, torch.device] = {}
        self.stages = [
            LocalStage(module, devices[i % len(devices)], placed, recompute) for i, module in enumerate(stages)
        ]
        self._split_backward = schedule == "zero-bubble"
        self.order = order(schedule, len(devices), len(stages) // len(devices), micro_batches)
        self._links = CardLinks()
        # By stage and micro-batch. What a stage made is sent at once; the next one takes it when its turn comes.
        self._coming: dict[tuple[int, int], list[Arriving]] = {}
        self._gradients_coming: dict[tuple[int, int], list[Arriving]] = {}
        self._inputs: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._outputs: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._weight_work: dict[tuple[int, int], list[dict[str, Any]]] = {}

    def train_step(
        self,
        inputs: list[tuple[Any, ...]],
        targets: list[Any],
        loss_fn: Callable[[Any, Any, int], tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """``loss_fn(output, target, m)`` gives what to differentiate and the share of the loss that is returned."""
        self._losses: list[torch.Tensor] = []
        for stage in self.stages:
            stage.begin()
        try:
            for kind, stage, m in self.order:
                if kind == FORWARD:
                    if stage == 0:
                        self._coming[0, m] = [self._links.send(value, self.stages[0].device) for value in inputs[m]]
                    self._forward(stage, m, targets[m], loss_fn)
                elif kind == BACKWARD:
                    self._backward(stage, m)
                elif kind == INPUT_GRADIENT:
                    self._input_gradient(stage, m)
                else:
                    self._weight_gradient(stage, m)
            for stage in self.stages:
                stage.end()
        finally:
            for held in (self._coming, self._gradients_coming, self._inputs, self._outputs, self._weight_work):
                held.clear()
        return torch.stack(self._losses).sum()

    @torch.no_grad()
    def outputs(self, inputs: list[tuple[Any, ...]]) -> list[Any]:
        """What the last stage gives for each micro-batch."""
        for stage in self.stages:
            stage.begin()
        results = []
        for values in inputs:
            for stage in self.stages:
                values = stage(*(moved(value, stage.device) for value in as_tuple(values)))
            results.append(values)
        return results

    def _forward(self, index: int, m: int, target: Any, loss_fn: Callable[..., Any]) -> None:
        stage = self.stages[index]
        values = []
        needs_grad = [getattr(v, "requires_grad", False) for v in self._outputs[index - 1, m]] if index else []
        for position, arriving in enumerate(self._coming.pop((index, m))):
            value = arriving.take()
            if isinstance(value, torch.Tensor) and index:
                value.requires_grad_(needs_grad[position])
            values.append(value)
        result = stage(*values)
        self._inputs[index, m] = tuple(values)
        if index == len(self.stages) - 1:
            differentiated, reported = loss_fn(result, moved(target, stage.device), m)
            self._losses.append(reported.detach())
            self._outputs[index, m] = (differentiated,)
            return
        outputs = as_tuple(result)
        if self._split_backward:  # stage_backward_input() detaches outputs, which a view does not allow
            outputs = tuple(
                v.clone() if isinstance(v, torch.Tensor) and (v._is_view() or v.is_leaf) else v for v in outputs
            )
        self._outputs[index, m] = outputs
        self._coming[index + 1, m] = [self._links.send(v, self.stages[index + 1].device) for v in outputs]

    def _gradients(self, index: int, m: int) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
        """Outputs of a stage that have a gradient, and it; None for the loss."""
        outputs = self._outputs.pop((index, m))
        if index == len(self.stages) - 1:
            return list(outputs), None
        grads = [arriving.take() for arriving in self._gradients_coming.pop((index, m))]
        pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
        return [output for output, _ in pairs], [grad for _, grad in pairs]

    def _send_gradients(self, index: int, m: int) -> None:
        """What the stage before waits for: None for inputs without a gradient."""
        inputs = self._inputs.pop((index, m))
        if index:
            to = self.stages[index - 1].device
            grads = [value.grad if isinstance(value, torch.Tensor) else None for value in inputs]
            self._gradients_coming[index - 1, m] = [self._links.send(grad, to) for grad in grads]

    def _backward(self, index: int, m: int) -> None:
        outputs, grads = self._gradients(index, m)
        if outputs:
            torch.autograd.backward(outputs, grads)
        self._send_gradients(index, m)

    def _input_gradient(self, index: int, m: int) -> None:
        outputs, grads = self._gradients(index, m)
        inputs = [v for v in self._inputs[index, m] if isinstance(v, torch.Tensor) and v.requires_grad]
        if inputs:
            weights = iter(self.stages[index].weights())
            _, self._weight_work[index, m] = stage_backward_input(outputs, grads, inputs, weights)
        else:  # nothing before this stage is trained: both halves at once
            if outputs:
                torch.autograd.backward(outputs, grads)
            self._weight_work[index, m] = []
        self._send_gradients(index, m)

    def _weight_gradient(self, index: int, m: int) -> None:
        weights = self.stages[index].weights()
        work = self._weight_work.pop((index, m))
        stage_backward_weight(iter(weights), work)
        for weight in weights:
            if work and weight.grad is not None:
                call_hooks(weight)
