"""diffusers: training steps of a small UNet, and denoising with a scheduler."""

import torch
from diffusers import DDPMScheduler, UNet2DModel


def main() -> None:
    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).to("npu")
    scheduler = DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images = torch.rand(4, 3, 16, 16, device="npu") * 2 - 1
    losses = []
    for _ in range(5):
        noise, steps = torch.randn_like(images), torch.full((4,), 25, device="npu")
        with torch.autocast("npu", dtype=torch.bfloat16):
            predicted = model(scheduler.add_noise(images, noise, steps), steps).sample
        loss = (predicted.float() - noise).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    scheduler.set_timesteps(4)
    sample = torch.randn(1, 3, 16, 16, device="npu")
    with torch.no_grad():
        for step in scheduler.timesteps:
            sample = scheduler.step(model(sample, step).sample, step, sample).prev_sample
    assert sample.device.type == "npu" and torch.isfinite(sample).all()
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
