"""timm: a small vision transformer, training steps under autocast with timm's own optimizer, schedule and EMA.

timm imports torchvision, whose compiled operators PyPI builds for CUDA only. Without them its import stops at shape
functions for two operators that nobody has declared; declaring them is all that timm needs.
"""

import torch

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_torchvision_operators() -> None:
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", _NMS)


def main() -> None:
    declare_torchvision_operators()
    import timm
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3

    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=4).to("npu")
    average = ModelEmaV3(model, decay=0.9)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    schedule = CosineLRScheduler(optimizer, t_initial=20)
    images = torch.randn(8, 3, 32, 32, device="npu")
    labels = torch.arange(8, device="npu") % 4
    losses = []
    for step in range(10):
        with torch.autocast("npu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step(step + 1)
        average.update(model)
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2, losses
    model.eval()
    with torch.no_grad():
        on_npu, on_cpu = model(images).cpu(), model.cpu()(images.cpu())
    torch.testing.assert_close(on_npu, on_cpu, rtol=1e-3, atol=1e-3)
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
