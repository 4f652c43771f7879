"""deepspeed: every call of its accelerator for npu, and the operators it builds from torch_npu's."""

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import FusedAdam
from deepspeed.ops.lamb import FusedLamb
from deepspeed.ops.lion import FusedLion
from deepspeed.ops.op_builder.npu import InferenceBuilder


def ask_the_accelerator() -> None:
    card = get_accelerator()
    assert card.device_name() == "npu" and card.device_name(1) == "npu:1" and card.is_available()
    card.set_device(0)
    assert card.current_device_name() == "npu:0" and card.device_count() >= 1
    card.manual_seed(1)
    card.manual_seed_all(1)
    state = card.get_rng_state()
    first = torch.randn(3, device="npu")
    card.set_rng_state(state)
    assert torch.equal(first, torch.randn(3, device="npu")) and card.initial_seed() == 1
    assert card.default_generator(0).device.type == "npu"

    stream = card.Stream()
    start, end = card.Event(enable_timing=True), card.Event(enable_timing=True)
    with card.stream(stream):
        start.record()
        torch.ones(64, 64, device="npu") @ torch.ones(64, 64, device="npu")
        end.record()
    stream.synchronize()
    card.synchronize()
    assert start.elapsed_time(end) >= 0 and card.current_stream() == card.default_stream()

    card.reset_max_memory_allocated()
    card.reset_max_memory_cached()
    card.reset_peak_memory_stats()
    kept = torch.ones(1 << 20, device="npu")
    assert card.memory_allocated() >= kept.nbytes and card.max_memory_allocated() >= kept.nbytes
    assert card.memory_reserved() == card.memory_cached() <= card.max_memory_reserved()
    assert 0 < card.available_memory() < card.total_memory() and card.memory_stats()["active.all.current"] > 0
    card.empty_cache()

    assert card.is_bf16_supported() and card.is_fp16_supported() and torch.bfloat16 in card.supported_dtypes()
    assert card.on_accelerator(kept) and not card.on_accelerator(torch.ones(1))
    for kind in ("BFloat16", "Byte", "Double", "Float", "Half", "Int", "Long"):
        assert getattr(card, f"{kind}Tensor")(2).device.type == "npu", kind
    pinned = card.pin_memory(torch.ones(8))
    assert card.is_pinned(pinned) and card.communication_backend_name() == "hccl"
    card.lazy_call(lambda: None)
    card.range_push("step")
    card.range_pop()
    pages = torch.zeros(2 * 4096, dtype=torch.uint8)
    start = -(-pages.data_ptr() // 4096) * 4096
    assert card.register_host_memory(start, 4096) and not card.register_host_memory(start + 1, 4095)
    card.unregister_host_memory(start)
    print("compile backend:", card.get_compile_backend())


def replay_a_graph() -> None:
    card = get_accelerator()
    x = torch.ones(4, device="npu")
    graph = card.create_graph()
    with card.capture_to_graph(graph):
        y = x * 2
    x.fill_(3)
    card.replay_graph(graph)
    assert y.tolist() == [6.0] * 4


def step_fused_optimizers() -> None:
    for optimizer, reference in ((FusedAdam, torch.optim.AdamW), (FusedLamb, None), (FusedLion, None)):
        torch.manual_seed(0)
        w = torch.randn(8, 8, device="npu", requires_grad=True)
        before, twin = w.detach().clone(), w.detach().clone().requires_grad_()
        step = optimizer([w], lr=1e-2)
        other = reference([twin], lr=1e-2, weight_decay=0) if reference else None
        for _ in range(3):
            w.grad = twin.grad = torch.full_like(w, 0.5)
            step.step()
            if other:
                other.step()
        assert not torch.equal(w, before) and w.isfinite().all()
        if other:
            torch.testing.assert_close(w, twin, rtol=1e-4, atol=1e-5)


def infer_by_kernels() -> None:
    """A prompt and a decoded token by softmax_context with its cache, against attention over the whole."""
    ops = InferenceBuilder().load()
    heads, size, length = 4, 16, 6
    for rotate_half in (True, False):
        ops_context = ops._softmax_context.__globals__["InferenceContext"]
        ops_context.kv_caches = None
        torch.manual_seed(0)
        qkv = torch.randn(1, length + 1, 3 * heads * size, device="npu", dtype=torch.float16)
        last = dict(rotary_dim=size, rotate_half=rotate_half, rotate_every_two=not rotate_half, heads=heads, num_kv=heads,
                    norm_factor=size**-0.25, triangular_masking=True, local_attention=False, window_size=1,
                    no_masking=False, layer_id=0, num_layers=1, alibi=torch.empty(1), rope_theta=10000.0)  # fmt: skip
        mask = torch.triu(torch.ones(length, length, device="npu"), 1)[None, None]
        prompt, keys, _ = ops.softmax_context_fp16(qkv[:, :length], mask, **last)
        token, keys, _ = ops.softmax_context_fp16(qkv[:, length:], torch.zeros(1, 1, 1, length + 1, device="npu"), **last)
        assert keys.shape == (1, heads, length + 1, size)
        ops_context.kv_caches = None
        whole, _, _ = ops.softmax_context_fp16(
            qkv, torch.triu(torch.ones(length + 1, length + 1, device="npu"), 1)[None, None], **last
        )
        torch.testing.assert_close(torch.cat([prompt, token], 1), whole, rtol=1e-2, atol=1e-2)
    x, ones = torch.randn(1, 4, 32, device="npu"), torch.ones(32, device="npu")
    assert ops.layer_norm(x, ones, ones * 0, 1e-5).std().item() > 0.9
    assert ops.vector_matmul_fp32(x, torch.eye(32, device="npu"), False, None, False, False).equal(x)


def checkpoint_activations() -> None:
    deepspeed.checkpointing.configure(None, partition_activations=False, checkpoint_in_cpu=True)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).npu()
    x = torch.randn(4, 8, device="npu", requires_grad=True)
    out = deepspeed.checkpointing.checkpoint(layer, x)
    out = out[0] if isinstance(out, tuple) else out
    out.sum().backward()
    kept = (out != 0).float()
    torch.testing.assert_close(x.grad, 2 * kept @ layer[0].weight)


def main() -> None:
    deepspeed.init_distributed()
    for step in (ask_the_accelerator, replay_a_graph, step_fused_optimizers, infer_by_kernels, checkpoint_activations):
        print("--", step.__name__)
        step()


if __name__ == "__main__":
    main()
