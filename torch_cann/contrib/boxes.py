"""Boxes of object detection: overlap, suppression, coding. A box is x1, y1, x2, y2 unless said otherwise."""

import math
from collections.abc import Sequence

import torch

__all__ = [
    "box_dtype_check",
    "npu_batched_multiclass_nms",
    "npu_bbox_coder_decode_xywh2xyxy",
    "npu_bbox_coder_encode_xyxy2xywh",
    "npu_bbox_coder_encode_yolo",
    "npu_ciou",
    "npu_diou",
    "npu_giou",
    "npu_iou",
    "npu_multiclass_nms",
    "npu_single_level_responsible_flags",
]


def box_dtype_check(box: torch.Tensor) -> torch.Tensor:
    """``box`` in a dtype that the box operators take: float32 or float16."""
    return box if box.dtype in (torch.float, torch.half) else box.float()


# --- overlap ----------------------------------------------------------------------------------------------------------


def _areas(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def npu_iou(
    boxes1: torch.Tensor,
    boxes2: torch.Tensor,
    mode: str = "ptiou",
    is_normalized: bool = False,
    normalized_scale: float = 100.0,
) -> torch.Tensor:
    """Overlap of each of (n, 4) boxes with each of (m, 4): (n, m).

    Args:
        mode: "iou" or "ptiou", intersection over union; the same here.
        is_normalized: coordinates are 0 to 1; they are multiplied by ``normalized_scale`` first.
    """
    if mode not in ("iou", "ptiou"):
        raise ValueError(f"npu_iou: mode must be 'iou' or 'ptiou', but is {mode!r}")
    scale = normalized_scale if is_normalized else 1.0
    first, second = boxes1[:, None] * scale, boxes2[None] * scale
    low, high = torch.maximum(first[..., :2], second[..., :2]), torch.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    union = _areas(first) + _areas(second) - shared
    return torch.where(union > 0, shared / union, torch.zeros_like(shared))


npu_ptiou = npu_iou


def _corners(boxes: torch.Tensor) -> torch.Tensor:
    """Centre x, centre y, width, height -> x1, y1, x2, y2."""
    return torch.cat((boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2), -1)


def _pairwise_parts(boxes1: torch.Tensor, boxes2: torch.Tensor, centred: bool) -> tuple[torch.Tensor, ...]:
    """For pairs of (n, 4) boxes: corners of both, overlap, union, and the smallest box around both."""
    if boxes1.shape != boxes2.shape or boxes1.shape[-1] != 4:
        raise ValueError(f"expected two (n, 4) tensors, but got {tuple(boxes1.shape)} and {tuple(boxes2.shape)}")
    a, b = (_corners(boxes1), _corners(boxes2)) if centred else (boxes1, boxes2)
    inner = torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])
    shared = inner.clamp(min=0).prod(-1)
    union = _areas(a) + _areas(b) - shared
    around = torch.cat((torch.minimum(a[:, :2], b[:, :2]), torch.maximum(a[:, 2:], b[:, 2:])), -1)
    return a, b, shared / union, union, around


def npu_giou(boxes1: torch.Tensor, boxes2: torch.Tensor, is_permuted: bool = True) -> torch.Tensor:
    """Generalised IoU (Rezatofighi et al., 2019) of pairs of boxes, (n, 1).

    Args:
        boxes1, boxes2: (n, 4), centre x, centre y, width, height; (4, n) unless ``is_permuted``.
    """
    if not is_permuted:
        boxes1, boxes2 = boxes1.t(), boxes2.t()
    _, _, iou, union, around = _pairwise_parts(boxes1, boxes2, centred=True)
    area = _areas(around)
    return (iou - (area - union) / area).unsqueeze(-1)


def _distance(a: torch.Tensor, b: torch.Tensor, around: torch.Tensor) -> torch.Tensor:
    """Squared distance of the centres over the squared diagonal of the box around both."""
    between = ((a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]) / 2).square().sum(-1)
    return between / (around[:, 2:] - around[:, :2]).square().sum(-1)


def _not_crossed(is_cross: bool, mode: int) -> None:
    if is_cross or mode != 0:
        raise NotImplementedError(f"only pairs (is_cross=False) over their union (mode=0), got {is_cross} and {mode}")


def npu_diou(
    boxes1: torch.Tensor, boxes2: torch.Tensor, trans: bool = True, is_cross: bool = False, mode: int = 0
) -> torch.Tensor:
    """Distance IoU (Zheng et al., 2020) of pairs of (n, 4) boxes: (n, 1).

    A box is centre and size if ``trans``, else corners.
    """
    _not_crossed(is_cross, mode)
    a, b, iou, _, around = _pairwise_parts(boxes1, boxes2, trans)
    return (iou - _distance(a, b, around)).unsqueeze(-1)


def npu_ciou(
    boxes1: torch.Tensor, boxes2: torch.Tensor, trans: bool = True, is_cross: bool = False, mode: int = 0
) -> torch.Tensor:
    """Complete IoU (Zheng et al., 2020): distance IoU less what the aspect ratios differ; arguments as there."""
    _not_crossed(is_cross, mode)
    a, b, iou, _, around = _pairwise_parts(boxes1, boxes2, trans)
    angles = [torch.atan((c[:, 2] - c[:, 0]) / (c[:, 3] - c[:, 1])) for c in (a, b)]
    aspect = 4 / math.pi**2 * (angles[0] - angles[1]).square()
    with torch.no_grad():
        weight = aspect / (1 - iou + aspect).clamp(min=torch.finfo(iou.dtype).eps)
    return (iou - _distance(a, b, around) - weight * aspect).unsqueeze(-1)


# --- suppression ------------------------------------------------------------------------------------------------------


def _suppress(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Indices of the boxes that stay, best first: those that overlap no better one that stays by more."""
    order = scores.argsort(descending=True, stable=True)
    overlaps = npu_iou(boxes[order], boxes[order]).cpu() > threshold
    stays = torch.ones(len(order), dtype=torch.bool)
    for place in range(len(order)):
        if stays[place]:
            stays[place + 1 :] &= ~overlaps[place, place + 1 :]
    return order[stays.to(order.device)]


def npu_multiclass_nms(
    multi_bboxes: torch.Tensor,
    multi_scores: torch.Tensor,
    score_thr: float = 0.05,
    nms_thr: float = 0.45,
    max_num: int = 50,
    score_factors: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Best boxes of every class without overlaps within it.

    Args:
        multi_bboxes: (n, 4), or (n, classes * 4).
        multi_scores: (n, classes + 1), the last for the background.
        score_factors: (n,), multiplied with the scores.

    Returns:
        (max_num, 5) boxes with score and (max_num,) classes, best first, filled up with zeros.
    """
    number, classes = multi_scores.shape[0], multi_scores.shape[1] - 1
    scores = multi_scores[:, :classes]
    if score_factors is not None:
        scores = scores * score_factors[:, None]
    boxes = multi_bboxes.view(number, -1, 4).expand(number, classes, 4)
    kept_boxes, kept_classes = [], []
    for label in range(classes):
        chosen = (scores[:, label] > score_thr).nonzero().squeeze(1)
        own_boxes, own_scores = boxes[chosen, label], scores[chosen, label]
        stays = _suppress(own_boxes, own_scores, nms_thr)
        kept_boxes.append(torch.cat((own_boxes[stays], own_scores[stays, None]), 1))
        kept_classes.append(torch.full((len(stays),), label, dtype=torch.int32, device=scores.device))
    found, labels = torch.cat(kept_boxes), torch.cat(kept_classes)
    best = found[:, 4].argsort(descending=True, stable=True)[:max_num]
    result, result_labels = found.new_zeros(max_num, 5), labels.new_zeros(max_num)
    result[: len(best)], result_labels[: len(best)] = found[best], labels[best]
    return result, result_labels


def npu_batched_multiclass_nms(
    multi_bboxes: torch.Tensor,
    multi_scores: torch.Tensor,
    score_thr: float = 0.05,
    nms_thr: float = 0.45,
    max_num: int = 50,
    score_factors: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """npu_multiclass_nms() for each image of a batch: arguments and results have one more dimension in front."""
    factors = [None] * len(multi_bboxes) if score_factors is None else score_factors
    results = [
        npu_multiclass_nms(*image, score_thr, nms_thr, max_num, factor)
        for *image, factor in zip(multi_bboxes, multi_scores, factors, strict=True)
    ]
    return torch.stack([boxes for boxes, _ in results]), torch.stack([labels for _, labels in results])


# --- coding -----------------------------------------------------------------------------------------------------------


def npu_single_level_responsible_flags(
    featmap_size: Sequence[int], gt_bboxes: torch.Tensor, stride: Sequence[int], num_base_anchors: int
) -> torch.Tensor:
    """Which cells of a (height, width) feature map hold the centre of a box: (height * width * anchors,) uint8."""
    height, width = featmap_size
    centres = (gt_bboxes[:, :2] + gt_bboxes[:, 2:]) / 2
    x, y = (centres[:, 0] / stride[0]).floor().long(), (centres[:, 1] / stride[1]).floor().long()
    flags = torch.zeros(height * width, dtype=torch.uint8, device=gt_bboxes.device)
    flags[y * width + x] = 1
    return flags[:, None].expand(height * width, num_base_anchors).reshape(-1)


def _centre_and_size(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


_EPS = 1e-6


def npu_bbox_coder_encode_yolo(
    bboxes: torch.Tensor, gt_bboxes: torch.Tensor, stride: int | torch.Tensor
) -> torch.Tensor:
    """(n, 4) targets of YOLO: place of the centre in its cell, and logarithm of the size's ratio."""
    if bboxes.shape != gt_bboxes.shape or bboxes.shape[-1] != 4:
        raise ValueError(f"expected two (n, 4) tensors, but got {tuple(bboxes.shape)} and {tuple(gt_bboxes.shape)}")
    centre, size = _centre_and_size(bboxes)
    gt_centre, gt_size = _centre_and_size(gt_bboxes)
    step = stride[:, None] if isinstance(stride, torch.Tensor) and stride.dim() == 1 else stride
    place = ((gt_centre - centre) / step + 0.5).clamp(_EPS, 1 - _EPS)
    return torch.cat((place, (gt_size / size).clamp(min=_EPS).log()), -1)


def npu_bbox_coder_encode_xyxy2xywh(
    bboxes: torch.Tensor,
    gt_bboxes: torch.Tensor,
    means: Sequence[float] | None = None,
    stds: Sequence[float] | None = None,
    is_normalized: bool = False,
    normalized_scale: float = 10000.0,
) -> torch.Tensor:
    """(n, 4) offsets from proposals to boxes, as in Faster R-CNN; less ``means``, over ``stds``."""
    scale = normalized_scale if is_normalized else 1.0
    centre, size = _centre_and_size(bboxes.float() * scale)
    gt_centre, gt_size = _centre_and_size(gt_bboxes.float() * scale)
    deltas = torch.cat(((gt_centre - centre) / size, (gt_size / size).log()), -1)
    return (deltas - deltas.new_tensor(means or (0.0,) * 4)) / deltas.new_tensor(stds or (1.0,) * 4)


def npu_bbox_coder_decode_xywh2xyxy(
    bboxes: torch.Tensor,
    pred_bboxes: torch.Tensor,
    means: Sequence[float] | None = None,
    stds: Sequence[float] | None = None,
    max_shape: Sequence[int] | None = None,
    wh_ratio_clip: float = 16 / 1000,
) -> torch.Tensor:
    """The reverse: (n, 4) boxes, inside ``max_shape`` (height, width) if given, sizes limited by the ratio."""
    offsets = pred_bboxes.float()
    deltas = offsets * offsets.new_tensor(stds or (1.0,) * 4) + offsets.new_tensor(means or (0.0,) * 4)
    centre, size = _centre_and_size(bboxes.float())
    limit = abs(math.log(wh_ratio_clip))
    new_size = size * deltas[..., 2:].clamp(-limit, limit).exp()
    boxes = _corners(torch.cat((centre + deltas[..., :2] * size, new_size), -1))
    if max_shape is None:
        return boxes
    height, width = max_shape[:2]
    return torch.minimum(boxes.clamp(min=0), boxes.new_tensor((width, height, width, height)))
