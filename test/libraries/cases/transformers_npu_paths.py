"""transformers: what it does on npu only. flash_attention_2 by npu_fusion_attention, padded, packed and with dropout;
device maps; memory metrics; the functions that look for the device."""

import tempfile
from unittest import mock

import torch
import torch_npu
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.integrations.npu_flash_attention import npu_flash_attn_func
from transformers.models.llama import modeling_llama
from transformers.utils import (
    is_flash_attn_2_available,
    is_torch_bf16_available_on_device,
    is_torch_fp16_available_on_device,
    is_torch_npu_available,
)

CONFIG = dict(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64)


class Ones(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(16) + index
        return {"input_ids": ids, "labels": ids}


def model(attention: str, **config) -> LlamaForCausalLM:
    torch.manual_seed(0)
    made = LlamaForCausalLM._from_config(LlamaConfig(**CONFIG, **config), attn_implementation=attention)
    return made.to("npu", torch.bfloat16)


def find_the_device() -> None:
    assert is_torch_npu_available() and is_torch_npu_available(check_device=True)
    assert is_torch_bf16_available_on_device("npu") and is_torch_fp16_available_on_device("npu")
    print("flash_attn is taken for installed:", is_flash_attn_2_available())


def compare_attentions() -> None:
    """Logits and gradients of eager, sdpa and flash_attention_2: plain, left-padded, packed."""
    ids = torch.randint(0, 64, (2, 24), device="npu")
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    packed = torch.cat([torch.arange(10), torch.arange(14)])[None].npu()
    inputs = {
        "plain": dict(input_ids=ids),
        "padded": dict(input_ids=ids, attention_mask=mask),
        "packed": dict(input_ids=ids[:1], position_ids=packed),
    }
    for name, kwargs in inputs.items():
        results = {}
        for attention in ("eager", "sdpa", "flash_attention_2"):
            net = model(attention)
            logits = net(**kwargs, use_cache=False).logits
            if name == "padded":
                logits = logits * mask[..., None]
            logits.float().square().mean().backward()
            results[attention] = logits.float(), net.model.layers[0].self_attn.q_proj.weight.grad.float()
        for attention in ("sdpa", "flash_attention_2"):
            for ours, eager in zip(results[attention], results["eager"], strict=True):
                torch.testing.assert_close(ours, eager, rtol=0.05, atol=0.02)
        print(name, "agrees")


def dropout_keeps_the_mean() -> None:
    q = torch.ones(1, 64, 2, 16, device="npu")
    out = npu_flash_attn_func(q, q, q, dropout_p=0.5)
    assert abs(out.mean().item() - 1) < 0.2 and out.std().item() > 0.01, (out.mean(), out.std())


def generate_with_flash_attention() -> None:
    net = model("flash_attention_2").eval()
    ids = torch.randint(0, 64, (2, 6), device="npu")
    flash = net.generate(ids, max_new_tokens=6, do_sample=False)
    eager = model("eager").eval().generate(ids, max_new_tokens=6, do_sample=False)
    assert flash.shape == (2, 12) and torch.equal(flash, eager), (flash, eager)


def place_by_device_map() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model("sdpa").cpu().save_pretrained(folder)
        whole = LlamaForCausalLM.from_pretrained(folder, device_map="npu:0", dtype=torch.bfloat16)
        assert {p.device for p in whole.parameters()} == {torch.device("npu", 0)}
        split = LlamaForCausalLM.from_pretrained(
            folder, device_map={"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1,
                                "model.rotary_emb": 0, "lm_head": 1}, dtype=torch.bfloat16,
        )  # fmt: skip
        assert {p.device.index for p in split.parameters()} == {0, 1}
        ids = torch.arange(8, device="npu")[None]
        torch.testing.assert_close(split(ids).logits.to("npu:0"), whole(ids).logits)
        auto = LlamaForCausalLM.from_pretrained(folder, device_map="auto", dtype=torch.bfloat16)
        assert {p.device.type for p in auto.parameters()} == {"npu"}
        assert auto.generate(ids, max_new_tokens=3, do_sample=False).shape == (1, 11)


def replace_layers_by_fused_operators() -> None:
    """As training frameworks for Ascend patch the models of transformers."""
    rms_norm = mock.patch.object(
        modeling_llama.LlamaRMSNorm, "forward",
        lambda self, x: torch_npu.npu_rms_norm(x, self.weight, epsilon=self.variance_epsilon)[0],
    )  # fmt: skip
    swiglu = mock.patch.object(
        modeling_llama.LlamaMLP, "forward",
        lambda self, x: self.down_proj(torch_npu.npu_swiglu(torch.cat((self.gate_proj(x), self.up_proj(x)), -1), dim=-1)),
    )  # fmt: skip
    rotary = mock.patch.object(
        modeling_llama, "apply_rotary_pos_emb",
        lambda q, k, cos, sin, unsqueeze_dim=1: tuple(
            torch_npu.npu_rotary_mul(x, cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)) for x in (q, k)
        ),
    )  # fmt: skip
    ids = torch.randint(0, 64, (2, 24), device="npu")
    plain, patched = model("sdpa"), model("sdpa")
    plain(ids, labels=ids).loss.backward()
    with rms_norm, swiglu, rotary:
        patched(ids, labels=ids).loss.backward()
    for ours, reference in zip(patched.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, reference.grad, rtol=0.05, atol=0.02)


def report_memory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=2, report_to=[], disable_tqdm=True, skip_memory_metrics=False,
                                      optim="adamw_torch", bf16=True, gradient_checkpointing=True)
        trainer = Trainer(model("flash_attention_2").float(), arguments, train_dataset=Ones())
        metrics = trainer.train().metrics
    print({name: value for name, value in metrics.items() if "mem" in name})
    assert metrics["train_mem_gpu_peaked_delta"] >= 0


def main() -> None:
    for step in (find_the_device, compare_attentions, dropout_keeps_the_mean, generate_with_flash_attention,
                 place_by_device_map, replace_layers_by_fused_operators, report_memory):
        print("--", step.__name__)
        step()


if __name__ == "__main__":
    main()
