"""peft: LoRA on a tiny Llama; only the adapters train, and merging them changes no result."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from transformers_trainer import CONFIG


def main() -> None:
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**CONFIG)).to("npu")
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert 0 < sum(p.numel() for p in trained) < 10_000 and all(p.device.type == "npu" for p in trained)
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    ids = (torch.arange(32, device="npu")[None] + torch.arange(8, device="npu")[:, None]) % CONFIG["vocab_size"]
    losses = []
    for _ in range(10):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    model.eval()
    before = model(input_ids=ids).logits
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids).logits, before, atol=1e-4, rtol=1e-4)
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
