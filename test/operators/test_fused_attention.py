"""Attention by kernels of its own, as scaled_dot_product_attention and npu_fusion_attention call it.

The measure is float64: a result may be off by twice what the CPU device's result of the same type is off, plus a few
units in the last place of the largest value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from instruction_sets import CAPABILITIES, run_again
from torch_cann import _C

_Attention = Callable[..., torch.Tensor]


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _qkv(
    batch: int, heads: int, kv_heads: int, queries: int, keys: int, size: int, value_size: int
) -> list[torch.Tensor]:
    shapes = [(batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, value_size)]
    return [_normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def _run(function: _Attention, qkv: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in qkv]
    output = function(*leaves)
    grad = _normal(*output.shape, seed=7).to(output.device, output.dtype)
    return [tensor.detach().cpu() for tensor in (output, *torch.autograd.grad(output, leaves, grad))]


def _check(function: _Attention, qkv: list[torch.Tensor], reference: _Attention | None = None) -> None:
    """npu against float64 of the reference on the CPU (the function itself by default)."""
    reference = reference or function
    exact = _run(reference, [tensor.double() for tensor in qkv])
    cpu = _run(reference, qkv)
    _C._kernel_choice()
    npu, again = (_run(function, [tensor.npu() for tensor in qkv]) for _ in range(2))
    for ours, second, theirs, want in zip(npu, again, cpu, exact, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert torch.equal(ours, second)
        error, cpu_error = ((result.double() - want).abs().max() for result in (ours, theirs))
        slack = 8 * torch.finfo(ours.dtype).eps * want.abs().max().clamp(min=1e-30)
        assert error <= 2 * cpu_error + slack, f"error {error:.3g}, the CPU's {cpu_error:.3g}"


_SIZES = [
    (1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 5, 5, 8, 8), (2, 3, 3, 64, 64, 64, 64), (1, 2, 2, 65, 131, 40, 24),
    (2, 6, 2, 100, 100, 33, 33), (1, 4, 1, 200, 70, 128, 96),
]  # fmt: skip


@pytest.mark.parametrize("sizes", _SIZES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sdpa(sizes: tuple[int, ...], causal: bool, dtype: torch.dtype) -> None:
    qkv = [tensor.to(dtype) for tensor in _qkv(*sizes)]
    gqa = sizes[1] != sizes[2]
    _check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa), qkv)
    if sizes[-1] == sizes[-2]:  # what ATen's choice of a fused kernel asks
        _C._kernel_choice()
        F.scaled_dot_product_attention(*(tensor.npu() for tensor in qkv), is_causal=causal, enable_gqa=gqa)
        # Short ones, and float32 that is not causal, are ATen's, which is faster there.
        positions = min(sizes[3], sizes[4])
        pays = (causal and positions >= 128) if dtype == torch.float32 else positions >= 64
        assert (_C._kernel_choice() == "own") == pays


@pytest.mark.parametrize("shape", [(70, 90), (2, 1, 70, 90), (1, 3, 1, 90), (2, 3, 70, 90), (2, 3, 70, 1)])
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sdpa_masks(shape: tuple[int, ...], kind: str, dtype: torch.dtype) -> None:
    mask = _normal(*shape, seed=5)
    if kind == "bool":
        mask = mask > -1
        mask[..., :1] = True

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        given = mask.to(q.device) if kind == "bool" else mask.to(q.device, q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=given, scale=0.3)

    _check(attend, [tensor.to(dtype) for tensor in _qkv(2, 3, 3, 70, 90, 16, 16)])


def test_sdpa_of_queries_that_see_nothing() -> None:
    mask = torch.ones(70, 70, dtype=torch.bool).tril()
    mask[3] = mask[69] = False
    _check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.device)),
           _qkv(1, 2, 2, 70, 70, 16, 16))  # fmt: skip


def test_sdpa_of_views() -> None:
    packed = _normal(2, 80, 3, 4, 16)
    _check(lambda x: F.scaled_dot_product_attention(*x.permute(2, 0, 3, 1, 4), is_causal=True), [packed])
    turned = [_normal(1, 2, 16, 70), *_qkv(1, 2, 2, 70, 70, 16, 16)[1:]]
    _check(lambda q, k, v: F.scaled_dot_product_attention(q.transpose(2, 3), k, v), turned)


@pytest.mark.parametrize("size", [16, 128], ids=["left to ATen", "own kernel"])
@pytest.mark.parametrize(
    "layout",
    [
        lambda size: torch.ones(2, 3, size, 8, device="npu"),
        lambda size: torch.ones(2, size, 3, 8, device="npu").transpose(1, 2),
        lambda size: torch.ones(size, 2, 3, 8, device="npu").permute(1, 2, 0, 3),
        lambda size: torch.ones(2, 1, size, 8, device="npu").expand(2, 3, size, 8),
        lambda size: torch.ones(2, size, 3, 24, device="npu")[..., :8].transpose(1, 2),
    ],
    ids=["heads first", "positions first", "batch inside", "expanded", "part of qkv"],
)
def test_results_are_laid_out_as_compiled_code_expects(layout: Callable[[int], torch.Tensor], size: int) -> None:
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def strides(q: torch.Tensor) -> list[tuple[int, ...]]:
        out, log_sum = forward(q, q, q, 0.0, True)
        return [t.stride() for t in (out, log_sum, *backward(out, q, q, q, out, log_sum, 0.0, True))]

    query = layout(size)
    with torch._subclasses.FakeTensorMode() as mode:
        expected = strides(mode.from_tensor(query))
    assert strides(query) == expected


def test_sdpa_left_to_other_kernels() -> None:
    qkv = [tensor.npu().double().requires_grad_() for tensor in _qkv(1, 2, 2, 20, 20, 8, 8)]
    want = F.scaled_dot_product_attention(*(tensor.cpu() for tensor in qkv))
    torch.testing.assert_close(F.scaled_dot_product_attention(*qkv).cpu(), want)
    assert F.scaled_dot_product_attention(*(torch.ones(0, 2, 5, 8).npu() for _ in range(3))).shape == (0, 2, 5, 8)
    dropped = F.scaled_dot_product_attention(*(tensor.float() for tensor in qkv), dropout_p=0.5)
    assert dropped.isfinite().all()


def test_what_is_not_finite() -> None:
    inf, nan = float("inf"), float("nan")
    for value in (inf, nan):
        qkv = _qkv(1, 2, 2, 70, 70, 16, 16)
        qkv[0][0, 0, 3, 0] = qkv[1][0, 1, 66, 2] = value
        ours, theirs = (
            F.scaled_dot_product_attention(*(t.to(device) for t in qkv), is_causal=True).cpu()
            for device in ("npu", "cpu")
        )
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def _masked_reference(masked: torch.Tensor) -> _Attention:
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=masked.logical_not(), enable_gqa=q.size(1) != k.size(1)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys"), [(90, 90), (70, 130)])
@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
def test_fusion_attention(mode: int, queries: int, keys: int, dtype: torch.dtype) -> None:
    qkv = [tensor.to(dtype) for tensor in _qkv(2, 4, 2, queries, keys, 24, 24)]
    rows, columns, shift = torch.arange(queries)[:, None], torch.arange(keys)[None], keys - queries
    compressed = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu()
    given = _normal(2, 1, queries, keys, seed=5) > 1
    given[..., 0] = False
    masked, options = {
        0: (torch.zeros(queries, keys, dtype=torch.bool), {}),
        1: (given, {"atten_mask": given.npu()}),
        2: (columns > rows, {"atten_mask": compressed}),
        3: (columns > rows + shift, {"atten_mask": compressed}),
        4: ((columns > rows + shift + 2) | (columns < rows + shift - 20),
            {"atten_mask": compressed, "pre_tockens": 20, "next_tockens": 2}),
    }[mode]  # fmt: skip
    arguments: dict[str, Any] = {"scale": 24**-0.5, "sparse_mode": mode, **options}
    _check(lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", **arguments)[0], qkv,
           _masked_reference(masked))  # fmt: skip


def test_fusion_attention_statistics() -> None:
    q, k, v = _qkv(1, 2, 2, 70, 90, 16, 16)
    mask = torch.zeros(70, 90, dtype=torch.bool)
    mask[5] = True
    out, maximum, total, *_ = torch_npu.npu_fusion_attention(
        q.npu(), k.npu(), v.npu(), 2, "BNSD", scale=0.25, atten_mask=mask.npu()
    )
    scores = (0.25 * q @ k.transpose(2, 3)).masked_fill(mask, -float("inf"))
    want = scores.amax(-1)
    seen = torch.arange(70) != 5
    assert maximum.shape == (1, 2, 70, 8)
    for lane in range(8):
        torch.testing.assert_close(maximum[..., lane].cpu()[..., seen], want[..., seen])
        sums = (scores - want[..., None]).exp().sum(-1)
        torch.testing.assert_close(total[..., lane].cpu()[..., seen], sums[..., seen])
    assert (maximum.cpu()[:, :, 5] == torch.finfo(torch.float32).min).all()
    assert (total[:, :, 5] == 0).all()
    assert (out[:, :, 5] == 0).all()


def test_does_not_depend_on_the_threads() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    qkv, threads, results = [t.npu() for t in _qkv(1, 6, 2, 200, 200, 32, 32)], torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(_run(attend, qkv))
    torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(map(torch.equal, results[0], result))


def test_makes_no_matrix_of_scores() -> None:
    q, k, v = (torch.zeros(1, 1, 2048, 16, device="npu", requires_grad=True) for _ in range(3))
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert torch.npu.max_memory_allocated() - before < 2048 * 2048 * 4 / 4


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_instruction_set(capability: str) -> None:
    run_again(__file__, capability, "test_sdpa or finite or (fusion and 130)")
