"""torch.nn.attention.varlen on npu, against attention of each sequence alone."""

import pytest
import torch
from torch.nn.attention.varlen import AuxRequest, varlen_attn

_LENGTHS_Q, _LENGTHS_K = (5, 9), (7, 9)


def _ends(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="npu")


def _inputs(heads_k: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = ((sum(_LENGTHS_Q), 4), (sum(_LENGTHS_K), heads_k), (sum(_LENGTHS_K), heads_k))
    return [torch.randn(*shape, 16, device="npu", requires_grad=True) for shape in shapes]


def _expected(q, k, v, window: tuple[int, int], scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp; windows are aligned to the ends of the sequences."""
    outs, sums = [], []
    for one_q, one_k, one_v in zip(q.split(_LENGTHS_Q), k.split(_LENGTHS_K), v.split(_LENGTHS_K), strict=True):
        repeat = q.size(1) // k.size(1)
        one_k, one_v = (t.repeat_interleave(repeat, 1) for t in (one_k, one_v))
        scores = torch.einsum("qhd,khd->hqk", one_q, one_k) * scale
        distance = torch.arange(len(one_k))[None] - torch.arange(len(one_q))[:, None] - (len(one_k) - len(one_q))
        left, right = window
        hidden = ((distance < -left) & (left >= 0)) | ((distance > right) & (right >= 0))
        scores = scores.masked_fill(hidden.npu(), -torch.inf)
        outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), one_v))
        sums.append(scores.logsumexp(-1))
    return torch.cat(outs), torch.cat(sums, 1)


@pytest.mark.parametrize("heads_k", [4, 2])
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (2, 1)])
def test_values_and_gradients(window, heads_k: int) -> None:
    ours, reference = _inputs(heads_k), _inputs(heads_k)
    options = {"window_size": window, "scale": 0.3, "enable_gqa": heads_k != 4, "return_aux": AuxRequest(lse=True)}
    out, lse = varlen_attn(*ours, _ends(_LENGTHS_Q), _ends(_LENGTHS_K), 9, 9, **options)
    expected, expected_lse = _expected(*reference, window, 0.3)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(lse, expected_lse)
    weights = torch.randn_like(expected)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, reference, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_what_only_cuda_has_is_refused_by_name() -> None:
    used = torch.tensor([3, 3], dtype=torch.int32, device="npu")
    with pytest.raises(NotImplementedError, match="flash attention with seqused_k is not provided"):
        varlen_attn(*_inputs(4), _ends(_LENGTHS_Q), _ends(_LENGTHS_K), 9, 9, seqused_k=used)
