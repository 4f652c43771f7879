"""16-bit products are as accurate in both ways of computing them: by ATen's kernels and in float32.

Which way runs depends on the processor, so each is asked for by ``TORCH_CANN_LOW_PRECISION`` in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_PROGRAM = """
import json, sys
import torch
import torch.nn.functional as F
import torch_cann

dtype = getattr(torch, sys.argv[1])
generator = torch.Generator().manual_seed(0)


def rand(*shape):
    return torch.randn(shape, generator=generator).to(dtype)


square, batch, image, kernel = (16, 16), (3, 16, 16), (2, 8, 9, 9), (8, 8, 3, 3)
calls = {
    "mm": (torch.mm, [square, square]),
    "addmm": (torch.addmm, [(16,), square, square]),
    "bmm": (torch.bmm, [batch, batch]),
    "baddbmm": (torch.baddbmm, [batch, batch, batch]),
    "linear": (F.linear, [square, square, (16,)]),
    "linear large": (F.linear, [(128, 256), (192, 256), (192,)]),
    "linear few rows": (F.linear, [(2, 1024), (1024, 1024)]),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 33, 16)] * 3),
    "mv": (torch.mv, [square, (16,)]),
    "conv1d": (F.conv1d, [(2, 8, 9), (8, 8, 3)]),
    "conv2d": (F.conv2d, [image, kernel]),
    "conv_transpose2d": (F.conv_transpose2d, [image, kernel]),
}
errors = {}
for name, (function, shapes) in calls.items():
    inputs = [rand(*shape) for shape in shapes]
    exact = [x.double().requires_grad_() for x in inputs]
    ours = [x.to("npu").requires_grad_() for x in inputs]
    want, got = function(*exact), function(*ours)
    assert got.dtype is dtype and got.device.type == "npu"
    cotangent = rand(*want.shape)
    wanted = [want, *torch.autograd.grad(want, exact, cotangent.double())]
    gotten = [got, *torch.autograd.grad(got, ours, cotangent.to("npu"))]
    scale = torch.finfo(dtype).eps
    errors[name] = max(
        ((g.detach().cpu().double() - w.detach()).abs().max() / w.detach().abs().max() / scale).item()
        for w, g in zip(wanted, gotten, strict=True)
    )
print(json.dumps(errors))
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("way", ["native", "float32", "auto"])
def test_products_round_once(way: str, dtype: str) -> None:
    environment = {**os.environ, "TORCH_CANN_LOW_PRECISION": way}
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, dtype], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    errors = json.loads(process.stdout)
    assert len(errors) == 12
    # In units of the dtype's spacing at the largest element: half a unit is the rounding of an exact result.
    assert {name: error for name, error in errors.items() if error > 1.0} == {}
