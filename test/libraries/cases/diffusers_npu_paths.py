"""diffusers: what it does on npu only. Its attention backend and processors, GEGLU and RMS norm, against the CPU."""

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.activations import GEGLU
from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn
from diffusers.models.attention_processor import AttnProcessor2_0, AttnProcessorNPU
from diffusers.models.normalization import RMSNorm
from diffusers.utils import is_torch_npu_available


def attend() -> None:
    q, k, v = (torch.randn(2, 10, 4, 16, device="npu", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 10, dtype=torch.bool, device="npu")
    mask[0, 6:] = False
    for given in (None, mask):
        results = []
        for backend in (AttentionBackendName._NATIVE_NPU, AttentionBackendName.NATIVE):
            shown = given if given is None or backend is AttentionBackendName._NATIVE_NPU else given[:, None, None]
            out = dispatch_attention_fn(q, k, v, attn_mask=shown, backend=backend)
            results.append((out, torch.autograd.grad(out.float().square().sum(), q)[0]))
        for ours, native in zip(*results, strict=True):
            torch.testing.assert_close(ours, native, rtol=0.05, atol=0.05)


def compare_layers() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16, device="npu")
    gated = GEGLU(16, 32).to("npu")
    hidden, gate = gated.proj(x).chunk(2, dim=-1)
    torch.testing.assert_close(gated(x), hidden * torch.nn.functional.gelu(gate), rtol=1e-3, atol=1e-3)
    norm = RMSNorm(16, eps=1e-6).to("npu")
    torch.testing.assert_close(norm(x), torch.nn.functional.rms_norm(x, (16,), eps=1e-6))


def denoise_with_either_processor() -> None:
    torch.manual_seed(0)
    model = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        cross_attention_dim=32, attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).to("npu", torch.float16).eval()  # fmt: skip
    sample = torch.randn(2, 4, 8, 8, device="npu", dtype=torch.float16)
    text = torch.randn(2, 7, 32, device="npu", dtype=torch.float16)
    outputs = []
    for processor in (AttnProcessorNPU(), AttnProcessor2_0()):
        model.set_attn_processor(processor)
        with torch.no_grad():
            outputs.append(model(sample, 10, text).sample)
    torch.testing.assert_close(*outputs, rtol=0.02, atol=0.02)


def main() -> None:
    assert is_torch_npu_available()
    for step in (attend, compare_layers, denoise_with_either_processor):
        print("--", step.__name__)
        step()


if __name__ == "__main__":
    main()
