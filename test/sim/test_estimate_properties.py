"""What must hold of any estimate whatever the machine: which of two runs is slower, and which needs more memory."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

_PROGRAM = """
    import json, torch, torch_npu
    from dataclasses import replace
    from torch_cann.plan import estimate
    from torch_cann.plan.layout import Layout, Model
    DENSE = Model(layers=8, hidden=2048, heads=16, vocab=32000, ffn=5504)
    ROUTED = replace(DENSE, layers=4, experts=8, top_k=2, expert_ffn=2048)
    BASE = Layout(sequence=4096, micro_batch=1, global_batch=32, dp=2, zero=1)
    def run(model=DENSE, /, **changes):
        sizes = {name: changes.pop(name) for name in list(changes) if name in vars(DENSE)}
        layout = replace(BASE, **changes)
        seconds, stages = estimate.run(replace(model, **sizes), layout)
        fullest = max(stages.values(), key=lambda stage: stage.memory["peak"]).memory
        return {"seconds": seconds, "allocated": fullest["peak_allocated"], "needed": fullest["peak"]}
    """

# Each list goes from the fastest to the slowest; equal times are no mistake only where the names say so.
_ORDERED = """
    def tokens(sequence):
        return run(sequence=sequence, micro_batch=32768 // sequence, global_batch=2 * (65536 // sequence), hidden=1024, heads=8)
    unequal = {
        "longer sequences, as many tokens": [tokens(2048 * 2**i) for i in range(5)],
        "fewer cards for tensors": [run(tp=tp) for tp in (8, 4, 2, 1)],
        "fewer cards for the context": [run(cp=cp, sequence=16384, global_batch=4) for cp in (4, 2, 1)],
        "more key-value heads": [run(kv_heads=kv) for kv in (2, 4, 16)],
        "a larger vocabulary": [run(vocab=vocab) for vocab in (32000, 64000, 151936)],
        "wider feedforward": [run(ffn=ffn) for ffn in (4096, 5504, 8192)],
        "more of it computed again": [
            run(), run(recompute="full", recomputed_layers=(3,)), run(recompute="full", swap_attention=True),
            run(recompute="full")],
        "more experts a token": [run(ROUTED, top_k=k) for k in (1, 2, 4)],
        "shared experts": [run(ROUTED), run(ROUTED, shared_ffn=2048), run(ROUTED, shared_ffn=4096)],
        "extras": [run(), run(qkv_bias=True), run(qkv_bias=True, logit_softcap=True)],
        "kernels that are not fused": [
            run(), run(fused_norm=False), run(fused_norm=False, fused_rotary=False),
            run(fused_norm=False, fused_rotary=False, fused_gated=False)],
        "attention that is not fused": [run(), run(flash=False)],
        "a window": [run(window=1024), run(window=1024, window_share=0.5), run()],
        "data parallelism that is not overlapped": [run(overlap_gradients=True, overlap_parameters=True), run()],
        "work as much for each of more servers": [run(dp=dp, tp=8, global_batch=16 * dp) for dp in (1, 2, 8)],
    }
    equal_allowed = {"network shared with experts": [run(ROUTED, dp=16, ep=1, overlap_gradients=True),
                                                     run(ROUTED, dp=16, ep=1)]}
    print(json.dumps([unequal, equal_allowed]))
    """

# Each list goes from the least memory to the most.
_MEMORY = """
    def pipeline(batches, chunks=1):
        return run(pp=4, dp=1, vpp=chunks, global_batch=batches)
    print(json.dumps({
        "fewer cards for tensors": [run(tp=tp) for tp in (8, 4, 2, 1)],
        "less sharding": [run(zero=zero, dp=4) for zero in (2, 1, 0)],
        "less computed again": [run(recompute="full"), run(recompute="full", recomputed_layers=(3,)), run()],
        "fewer stages": [run(pp=4, dp=1, global_batch=8), run(pp=2, dp=1, global_batch=8)],
        "larger micro-batches": [run(micro_batch=micro) for micro in (1, 2, 4)],
        "fewer cards for experts": [run(ROUTED, dp=8, ep=ep) for ep in (8, 4, 2, 1)],
        "fewer cards for the context": [run(cp=cp, sequence=16384, global_batch=4) for cp in (4, 2, 1)],
        "masters apart": [run(reuse_master=True), run()],
        "gradients in fp32": [run(fp16=True), run(fp16=True, fp32_gradients=True)],
    }))
    """

_PIPELINE = """
    from torch_cann.plan import schedule
    def bubble(batches, chunks):
        _, stages = estimate.run(replace(DENSE, vocab=512), replace(BASE, pp=4, dp=1, vpp=chunks, global_batch=batches))
        layout = replace(BASE, pp=4, dp=1, vpp=chunks, global_batch=batches)
        filled = estimate._fill(stages, replace(DENSE, vocab=512), layout)
        return schedule.bubble([filled[i].times() for i in range(4)], batches)
    print(json.dumps([[bubble(batches, chunks) for batches in (4, 8, 16, 64)] for chunks in (1, 2)]))
    """

_DRY = {"TORCH_CANN_DRY_RUN": "1", "TORCH_CANN_HBM_MB": "1048576"}


def _rising(values: list[float], *, strictly: bool = True) -> bool:
    return all(a < b or (not strictly and a == b) for a, b in itertools.pairwise(values))


def test_more_work_is_never_faster(run_code: Callable[..., str]) -> None:
    unequal, equal_allowed = json.loads(run_code(_PROGRAM + _ORDERED, **_DRY))
    seconds = {name: [r["seconds"] for r in results] for name, results in unequal.items()}
    assert {name: values for name, values in seconds.items() if not _rising(values)} == {}
    for results in equal_allowed.values():
        assert _rising([r["seconds"] for r in results], strictly=False)


def test_what_takes_more_memory(run_code: Callable[..., str]) -> None:
    found = json.loads(run_code(_PROGRAM + _MEMORY, **_DRY))
    # Masters in whose upper half the weights live are taken off what is needed, not off what is allocated.
    key = {"masters apart": "needed"}
    peaks = {name: [r[key.get(name, "allocated")] for r in results] for name, results in found.items()}
    assert {name: values for name, values in peaks.items() if not _rising(values)} == {}


_GATHERING = """
    import warnings
    warnings.simplefilter("error")
    print(json.dumps([[run(model, dp=4, overlap_parameters=on, recompute=again)["allocated"] for on in (False, True)]
                      for model in (DENSE, ROUTED) for again in ("none", "full")]))
    """


def test_a_forward_beside_the_gathering_of_parameters_keeps_nothing(run_code: Callable[..., str]) -> None:
    """No backward follows it. A mixture's router holds on to what its forward made, and so would to all of its graph."""
    for apart, overlapped in json.loads(run_code(_PROGRAM + _GATHERING, **_DRY)):
        assert overlapped == apart


def test_bubbles_shrink_with_micro_batches_and_chunks(run_code: Callable[..., str]) -> None:
    plain, interleaved = json.loads(run_code(_PROGRAM + _PIPELINE, **_DRY))
    for shares in (plain, interleaved):
        assert _rising(shares[::-1])
    assert all(b < a for a, b in zip(plain, interleaved, strict=True))


_FASTER = {
    "hbm_gbps": 2400,
    "peak_fp16_tflops": 471.8,
    "mesh_link_gbps": 40,
    "nic_gbps": 45,
    "l2_mib": 512,
}


def test_a_better_chip_is_never_slower(run_code: Callable[..., str], tmp_path: Path) -> None:
    """The same runs on the chip and on others with one figure raised: none slower, and one of them faster, if it can be."""
    code = (
        _PROGRAM
        + """
    wide = dict(dp=4, ep=4, tp=8, overlap_gradients=True)
    print(json.dumps([run()["seconds"], run(tp=8, fused_collectives=True)["seconds"], run(ROUTED, **wide)["seconds"]]))
    """
    )
    chips = [f'[{name}]\nbase = "Ascend910B2"\n{name} = {value}\n' for name, value in _FASTER.items()]
    (tmp_path / "better.toml").write_text("\n".join(chips))

    def seconds(chip: str) -> list[float]:
        return json.loads(
            run_code(code, **_DRY, TORCH_CANN_SOC_FILE=str(tmp_path / "better.toml"), TORCH_CANN_SOC=chip)
        )

    before = seconds("Ascend910B2")
    for figure in _FASTER:
        after = seconds(figure)
        assert all(b <= a for a, b in zip(before, after, strict=True)), figure
        if figure != "l2_mib":
            assert sum(after) < sum(before), figure
