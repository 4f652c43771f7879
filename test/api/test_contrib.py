"""torch_npu.contrib: layers, functions and boxes against PyTorch's operators or numbers computed by hand."""

import math

import pytest
import torch
import torch_npu.contrib as contrib
from torch_npu.contrib import function, module
from torch_npu.contrib.function.anchor_generator import box_dtype_check
from torch_npu.contrib.module.focus import Conv, autopad, fast_slice

_A = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 4.0, 4.0]]).npu()
_B = torch.tensor([[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 4.0, 2.0]]).npu()


def _centred(corners: torch.Tensor) -> torch.Tensor:
    return torch.cat(((corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]), 1)


def test_overlaps() -> None:
    expected = torch.tensor([[1 / 7, 1 / 2], [1 / 4, 1 / 2]])
    torch.testing.assert_close(contrib.npu_iou(_A, _B).cpu(), expected)
    torch.testing.assert_close(contrib.npu_ptiou(_A / 4, _B / 4, mode="iou", is_normalized=True).cpu(), expected)
    giou = contrib.npu_giou(_centred(_A), _centred(_B))
    torch.testing.assert_close(giou.cpu(), torch.tensor([[1 / 7 - 2 / 9], [0.5]]))
    torch.testing.assert_close(contrib.npu_giou(_centred(_A).t(), _centred(_B).t(), is_permuted=False), giou)
    diou = contrib.npu_diou(_A, _B, trans=False)
    torch.testing.assert_close(diou.cpu(), torch.tensor([[1 / 7 - 2 / 18], [0.5 - 1 / 32]]))
    aspect = 4 / math.pi**2 * (math.atan(1) - math.atan(2)) ** 2
    weight = aspect / (0.5 + aspect)
    ciou = contrib.npu_ciou(_centred(_A), _centred(_B))
    torch.testing.assert_close(ciou.cpu(), torch.tensor([[1 / 7 - 2 / 18], [0.5 - 1 / 32 - weight * aspect]]))
    with pytest.raises(ValueError, match="mode must be"):
        contrib.npu_iou(_A, _B, mode="iof")
    with pytest.raises(ValueError, match=r"two \(n, 4\) tensors"):
        contrib.npu_giou(_A, _B[:1])
    with pytest.raises(NotImplementedError, match="only pairs"):
        contrib.npu_diou(_A, _B, is_cross=True)
    assert box_dtype_check(_A.long()).dtype == torch.float32 and box_dtype_check(_A) is _A


def test_suppression() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]]).npu()
    scores = torch.tensor([[0.9, 0.01, 0], [0.8, 0.6, 0], [0.7, 0.02, 0]]).npu()
    found, labels = contrib.npu_multiclass_nms(boxes, scores, score_thr=0.05, nms_thr=0.5, max_num=4)
    assert found[:, 4].tolist() == pytest.approx([0.9, 0.7, 0.6, 0.0]) and labels.tolist() == [0, 0, 1, 0]
    factors = torch.tensor([0.0, 1.0, 1.0]).npu()
    found, _ = contrib.npu_multiclass_nms(boxes, scores, max_num=4, score_factors=factors)
    assert found[0, 4].item() == pytest.approx(0.8)
    batched, _ = contrib.npu_batched_multiclass_nms(boxes[None], scores[None], max_num=4, score_factors=factors[None])
    assert torch.equal(batched[0], found)


def test_coding_of_boxes() -> None:
    proposals, truth = _A + torch.tensor([0.0, 0, 1, 1]).npu(), _B
    options = {"means": (0.1, 0, 0, 0), "stds": (0.5, 0.5, 1, 1)}
    deltas = contrib.npu_bbox_coder_encode_xyxy2xywh(proposals, truth, **options)
    torch.testing.assert_close(contrib.npu_bbox_coder_decode_xywh2xyxy(proposals, deltas, **options), truth)
    inside = contrib.npu_bbox_coder_decode_xywh2xyxy(proposals, deltas, **options, max_shape=(2, 3))
    assert inside.max(0).values.tolist() == pytest.approx([1, 1, 3, 2])
    yolo = contrib.npu_bbox_coder_encode_yolo(_A, _B, stride=8)
    assert yolo[0].tolist() == pytest.approx([0.625, 0.625, 0, 0])
    flags = contrib.npu_single_level_responsible_flags((2, 2), _B * 4, (8, 8), 3)
    assert flags.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1] or flags.sum() == 6


def test_functions() -> None:
    x = torch.randn(3, 4, device="npu")
    assert torch.equal(function.roll(x, 1, 0), torch.roll(x, 1, 0))
    assert torch.equal(function.matmul_transpose(x, x), x @ x.t())
    assert torch.equal(module.Matmul_transpose(x, x), x @ x.t())
    put = contrib.npu_fast_condition_index_put(x, x > 0, 7.0)
    assert ((put == 7) == (x > 0)).all() and put is not x
    with pytest.raises(TypeError, match="must be a bool tensor"):
        contrib.npu_fast_condition_index_put(x, x, 0)
    scores, mask = torch.randn(2, 4, 4, device="npu"), torch.zeros(2, 1, 4, device="npu")
    mask[:, :, 3] = -1e9
    weights = contrib.fuse_add_softmax_dropout(False, torch.nn.Dropout(0.5), mask, scores, 16)
    torch.testing.assert_close(weights, torch.softmax(scores / 4 + mask, -1))
    dropped = function.dropout_with_byte_mask(torch.ones(1000, device="npu"), p=0.5)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_layers() -> None:
    x = torch.randn(2, 4, 8, 8, device="npu")
    assert torch.equal(contrib.Mish()(x), torch.nn.functional.mish(x))
    assert torch.equal(contrib.SiLU()(x), torch.nn.functional.silu(x)) and contrib.Swish is contrib.SiLU
    first, second = contrib.ChannelShuffle(8)(x, x + 100)
    assert torch.equal(torch.cat((first, second), 1)[:, ::2], x) and second.shape == x.shape
    assert contrib.ChannelShuffle(8, split_shuffle=False)(x, x).shape == (2, 8, 8, 8)
    assert fast_slice(x).shape == (2, 16, 4, 4) and torch.equal(fast_slice(x)[:, 4:8], x[..., 1::2, ::2])
    assert contrib.Focus(4, 6, k=3).npu()(x).shape == (2, 6, 4, 4) and autopad([3, 5]) == [1, 2]
    assert isinstance(Conv(4, 4, act=False).act, torch.nn.Identity)
    assert contrib.BiLSTM(8, 5).npu()(torch.randn(3, 2, 8, device="npu")).shape == (3, 2, 10)
    assert isinstance(contrib.FastBatchNorm2d(4), torch.nn.BatchNorm2d)
    with pytest.raises(ValueError, match="2 groups"):
        contrib.ChannelShuffle(8, groups=4)


def test_dropout_layers() -> None:
    ones = torch.ones(100, 20, device="npu")
    for layer in (contrib.NpuCachedDropout(0.5), contrib.NpuFairseqDropout(0.5), module.DropoutWithByteMask(0.5)):
        assert set(layer(ones).unique().tolist()) == {0.0, 2.0} and torch.equal(layer.eval()(ones), ones)
    path = contrib.NpuDropPath(0.5)
    rows = path(ones)
    assert set(rows.unique().tolist()) == {0.0, 2.0} and all(len(row.unique()) == 1 for row in rows)
    assert torch.equal(path.eval()(ones), ones)
    contrib.NpuDropPath.enable_droppath_ensemble(path)
    contrib.NpuCachedDropout.enable_dropout_ensemble(path)
    with pytest.raises(ValueError, match="between 0 and 1"):
        module.DropoutWithByteMask(1.5)


def test_label_smoothing() -> None:
    scores, target = torch.randn(6, 5, device="npu"), torch.arange(6, device="npu") % 5
    torch.testing.assert_close(
        contrib.LabelSmoothingCrossEntropy(5)(scores, target), torch.nn.functional.cross_entropy(scores, target)
    )
    smooth = contrib.LabelSmoothingCrossEntropy(5, smooth_factor=0.1)(scores, target)
    # PyTorch spreads the factor over all classes, ours over the others.
    expected = torch.nn.functional.cross_entropy(scores, target, label_smoothing=0.1 * 5 / 4)
    torch.testing.assert_close(smooth, expected)


def test_prefetcher() -> None:
    batches = [(torch.full((2, 2), i, dtype=torch.uint8), torch.tensor([i])) for i in range(3)]
    prefetcher = contrib.Prefetcher(batches)
    for i in range(3):
        image, target = prefetcher.next()
        assert image.dtype == torch.float32 and image.device.type == "npu" and image[0, 0] == target == i
    assert prefetcher.next() == (None, None)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="'torch_npu.contrib' has no attribute 'nothing'"):
        contrib.nothing
