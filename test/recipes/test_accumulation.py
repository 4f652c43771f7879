"""GradientAccumulation: several small batches are one large one."""

import pytest
import torch
import torch.nn.functional as F
from cann.recipes.train import GradientAccumulation
from small import Numbers, classifier, points
from torch.utils.data import DataLoader


def gradients(model) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_gradients_are_those_of_the_whole_batch(steps: int) -> None:
    x, y = (t.npu() for t in points(50).tensors)
    whole, parts = classifier().npu(), classifier().npu()
    F.cross_entropy(whole(x), y).backward()
    accumulation = GradientAccumulation(steps)
    pieces = accumulation.split({"x": x, "y": y})
    assert len(pieces) == steps and pieces[0]["x"].data_ptr() == x.data_ptr()
    for piece, weight in accumulation.weighted(pieces, parts):
        (F.cross_entropy(parts(piece["x"]), piece["y"]) * weight).backward()
    # The order of summation differs: a few units in float32's last place.
    torch.testing.assert_close(gradients(parts), gradients(whole), rtol=1e-5, atol=1e-6)


def test_groups_of_a_loader() -> None:
    groups = list(GradientAccumulation(4).groups(DataLoader(Numbers(22), 3)))
    assert [len(group) for group in groups] == [4, 4]
    weights = [weight for _, weight in GradientAccumulation(4).weighted(groups[1])]
    assert weights == [0.3, 0.3, 0.3, 0.1]


def test_peak_memory_falls() -> None:
    def peak(steps: int) -> int:
        model = classifier().npu()
        x, y = (t.npu() for t in points(4096).tensors)
        torch.npu.reset_peak_memory_stats()
        accumulation = GradientAccumulation(steps)
        for (piece, target), weight in accumulation.weighted(accumulation.split((x, y)), model):
            (F.cross_entropy(model(piece), target) * weight).backward()
        return torch.npu.max_memory_allocated() - torch.npu.memory_allocated()

    assert peak(8) < 0.3 * peak(1)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1, but is 0"):
        GradientAccumulation(0)
    with pytest.raises(ValueError, match=r"one length, at least 1, in dimension 0, but have \[2, 3\]"):
        GradientAccumulation(2).split((torch.ones(2), torch.ones(3)))
