"""The reference program and its schedules: against closed forms, a published memory table and published runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torch_cann.plan import schedule
from torch_cann.plan.errors import PlanError
from torch_cann.plan.layout import Layout, Model, check

_VALIDATION = Path(__file__).resolve().parents[2] / "benchmarks" / "validation.py"
_LLAMA = Model(layers=32, hidden=4096, heads=32, vocab=32000, ffn=11008)


def _equal_stages(stages: int, chunks: int) -> list[schedule.StageTimes]:
    return [schedule.StageTimes((1.0 / chunks,) * chunks, (2.0 / chunks,) * chunks) for _ in range(stages)]


@pytest.mark.parametrize(("stages", "batches"), [(1, 4), (4, 4), (4, 16), (8, 100)])
def test_1f1b_has_the_known_bubble(stages: int, batches: int) -> None:
    assert schedule.makespan(_equal_stages(stages, 1), batches) == pytest.approx(3 * (batches + stages - 1))


@pytest.mark.parametrize("chunks", [2, 4])
def test_interleaving_divides_the_bubble(chunks: int) -> None:
    stages, batches = 4, 16
    assert schedule.makespan(_equal_stages(stages, chunks), batches) == pytest.approx(
        3 * (batches + (stages - 1) / chunks)
    )


def test_a_long_step_is_extrapolated_exactly() -> None:
    times = [schedule.StageTimes((1.0 + 0.3 * i,), (2.0 + 0.1 * i,)) for i in range(4)]
    exact = schedule._simulate(times, 57)
    assert schedule.makespan(times, 57) == pytest.approx(exact)


def test_every_micro_batch_is_done_once() -> None:
    for stages, chunks, batches in ((4, 1, 6), (4, 2, 8), (2, 3, 4)):
        for stage in range(stages):
            units = schedule.order(stage, stages, chunks, batches)
            assert sorted(units) == sorted(
                (f, c, b) for f in (False, True) for c in range(chunks) for b in range(batches)
            )


def test_first_stages_hold_most() -> None:
    assert [schedule.in_flight(stage, 4, 1, 16) for stage in range(4)] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": 3}, "tensor parallelism 3 does not divide the 32 attention heads"),
        ({"pp": 5}, "do not divide the 32 layers"),
        ({"dp": 3}, "do not divide the global batch"),
        ({"pp": 2, "stage_layers": (10, 10)}, "sum up to 32"),
        ({"tp": 0}, "tp must be at least 1"),
        ({"vpp": 2}, "need a pipeline to interleave in"),
        ({"dp": 2, "ep": 2}, "is for mixtures of experts"),
    ],
)
def test_impossible_layouts_are_refused(changes: dict, message: str) -> None:
    layout = Layout(**({"sequence": 4096, "micro_batch": 1, "global_batch": 64} | changes))
    with pytest.raises(PlanError, match=message):
        check(_LLAMA, layout)


def test_activations_of_the_published_22b_model(run_code) -> None:
    """Figure 1 of arXiv 2205.05198: 59.25 GiB, 39.56 with sequence parallelism, 9.56 with selective recomputation too."""
    code = """
        import gc, json, torch, torch_npu
        from torch_cann.plan.layout import Layout, Model
        from torch_cann.plan.reference.stage import Stage
        model = Model(layers=2, hidden=6144, heads=64, vocab=51200, ffn=24576, gated=False)
        def gib(sequence_parallel, recompute):
            layout = Layout(sequence=2048, micro_batch=4, global_batch=4, tp=8, fp16=True, rotary=False, dropout=True,
                            flash=False, fused_softmax=True, sequence_parallel=sequence_parallel, recompute=recompute)
            stage = Stage(model, layout, 0)
            x = torch.empty(8192 // (8 if sequence_parallel else 1), 6144, dtype=torch.half, device="npu", requires_grad=True)
            gc.collect()
            before = torch.npu.memory_allocated()
            for layer in stage.chunks[0]: x = layer(x)
            return round((torch.npu.memory_allocated() - before) / 2 * 48 / 2**30, 2)
        print(json.dumps([gib(False, "none"), gib(True, "none"), gib(True, "selective")]))
        """
    assert json.loads(run_code(code, TORCH_CANN_DRY_RUN="1")) == pytest.approx([59.25, 39.56, 9.56], abs=0.01)


def test_estimate_and_its_errors(npu_plan) -> None:
    good = npu_plan(
        "estimate",
        "--model",
        "gpt3-175b",
        "--tp",
        "8",
        "--pp",
        "16",
        "--npus",
        "1024",
        "--global-batch",
        "1024",
        "--sequence",
        "2048",
    )
    assert good.returncode == 0, good.stderr
    assert "Pipeline bubble" in good.stdout
    full = npu_plan("estimate", "--model", "llama2-7b", "--npus", "1", "--zero", "0")
    assert full.returncode == 3
    assert "GiB of 61.0" in full.stderr
    bad = npu_plan("estimate", "--model", "llama2-7b", "--tp", "8", "--npus", "12")
    assert (bad.returncode, bad.stderr.count("\n")) == (1, 1)
    assert "does not divide 12 NPUs" in bad.stderr


def test_search_finds_what_fits(npu_plan) -> None:
    done = npu_plan("search", "--model", "llama2-7b", "--npus", "8", "--global-batch", "16", "--limit", "12")
    assert done.returncode == 0, done.stderr
    assert "12 of 57 layouts of 8" in done.stdout
    assert " * " in done.stdout


def test_explain_shows_where_the_shortcuts_break(npu_plan) -> None:
    done = npu_plan("explain", "--model", "gpt3-175b", "--tokens", "1e12")
    assert "40,509 days" in done.stdout
    assert "1,051.2 GFLOP" in done.stdout
    claim = npu_plan("explain", "--model", "llama2-7b", "--npus", "8", "--batch", "128", "--step-seconds", "2")
    assert "more than the chip's peak: cannot be" in claim.stdout
    # DeepSeek-V3's report: 671 B parameters, 37 B for a token.
    mixture = npu_plan("explain", "--model", "deepseek-v3")
    assert "670.92 B parameters" in mixture.stdout and "8 of 256 experts" in mixture.stdout
    assert 36 < float(re.search(r"([\d.]+) B: 8 of 256", mixture.stdout)[1]) < 38


def test_tables_go_out_and_come_back(npu_plan, tmp_path: Path) -> None:
    assert npu_plan("export", "ours.csv").returncode == 0
    lines = (tmp_path / "ours.csv").read_text().splitlines()
    header, first = lines[0], lines[1].split(",")
    slower = [*first[:-1], str(float(first[-1]) * 2)]
    (tmp_path / "measured.csv").write_text("\n".join([header, ",".join(slower)]) + "\n")
    done = npu_plan("calibrate", "measured.csv")
    assert "--calibration 2.000" in done.stdout
    same = npu_plan("calibrate", "ours.csv")
    assert "--calibration 1.000" in same.stdout
    header = "kind,name,shapes,dtype,bytes,ranks,duration_us"
    bad = {
        "a,b\n1,2": "lacks the columns duration_us, kind, name",
        "kind,name,duration_us\noperator,mm,3": "line 2: a measured operator needs shapes and dtype",
        f"{header}\ncollective,all_reduce,,,1024,,3": "ranks is missing",
        f"{header}\noperator,mm,4x4;4x4,bfloat16,,,-1": "must be a positive number",
        f"{header}\noperator,mm,4x4;4x4,bfloat16,,,nan": "must be a positive number",
        f"{header}\noperator,mm,4by4,bfloat16,,,1": "shapes are like 64x128;128x32",
        f"{header}\noperator,mm,4x4;4x4,int3,,,1": "dtype 'int3' is none of",
        f"{header}\ncollective,all_hail,,,1024,0-8-1,3": "no collective named all_hail",
        f"{header}\nkernel,mm,4x4;4x4,bfloat16,,,1": "operator or collective, not 'kernel'",
        header: "has no rows",
    }
    for text, message in bad.items():
        (tmp_path / "bad.csv").write_text(text + "\n")
        refused = npu_plan("calibrate", "bad.csv")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
        assert message in refused.stderr


def test_published_a100_runs_within_three_percent(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, _VALIDATION, "--set", "a100", "--json", tmp_path / "v.json"], check=True, timeout=240
    )
    result = json.loads((tmp_path / "v.json").read_text())
    published = result["sets"]["Megatron-LM 2022, A100"]
    assert published["rows"] == 8
    assert published["mean"] < 0.03
    assert published["naive_mean"] > 0.10
    figures = [pair for row in result["rows"] for pair in row.get("memory_gib", {}).values()]
    assert len(figures) == 24
    assert [round(counted, 2) for _, counted in figures] == [round(given, 2) for given, _ in figures]
    assert not [row["id"] for row in result["rows"] if row["peak_gib"] > row["capacity_gib"]]


def test_rows_in_another_file_may_leave_fields_out(tmp_path: Path) -> None:
    """What a row must have, uneven layers, idle layers, partial recomputation, an unknown framework, a contradiction."""
    model = {"layers": 9, "hidden": 1024, "heads": 8, "ffn": 2816, "vocab": 32000, "glu": True}
    least = {
        "id": "least", "framework": "Other", "device": "Atlas", "npus": 8, "model": model, "seq": 2048,
        "parallel": {"tp": 2, "pp": 2}, "measured": {"tokens_per_s_per_npu": 9000}, "source": {},
    }  # fmt: skip
    block = {"recompute-granularity": "full", "recompute-method": "block", "recompute-num-layers": "1"}
    rows = [
        least,
        least | {"id": "whole", "recompute": {"recompute-granularity": "full"}, "global_batch": 32},
        least | {"id": "block", "recompute": block, "global_batch": 32},
        least
        | {"id": "idle", "noop_layers": "8", "model": model | {"layers": 8}, "parallel": {"tp": 1, "pp": 3}, "npus": 3},
        least | {"id": "wrong", "parallel": {"tp": 16}, "npus": 16},
        least | {"id": "denied", "grade": "X"},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    command = [
        sys.executable,
        _VALIDATION,
        "--set",
        "ascend",
        "--rows",
        tmp_path / "rows.json",
        "--json",
        tmp_path / "v.json",
    ]
    done = subprocess.run(command, check=True, timeout=240, capture_output=True, text=True)
    found = {row["id"]: row for row in json.loads((tmp_path / "v.json").read_text())["rows"]}
    assert found["least"]["set"] == "Other, 910B"
    assert found["block"]["model_seconds"] < found["whole"]["model_seconds"]
    assert found["block"]["peak_gib"] > found["whole"]["peak_gib"]
    assert found["idle"]["error"] is not None
    assert "does not divide the 8 attention heads" in found["wrong"]["skipped"]
    assert "denied" in done.stdout and "contradict" in done.stdout and "error" not in found["denied"]


_MONOTONE = """
    import json, torch, torch_npu
    from torch_cann.plan import estimate
    from torch_cann.plan.layout import Layout, Model
    dense = Model(layers=4, hidden=2048, heads=16, vocab=32000, ffn=5504)
    routed = Model(layers=4, hidden=2048, heads=16, vocab=32000, ffn=5504, experts=8, top_k=2)
    def run(model=dense, **changes):
        layout = Layout(**({"sequence": 2048, "micro_batch": 1, "global_batch": 64, "dp": 2, "zero": 1} | changes))
        seconds, stages = estimate.run(model, layout)
        fullest = max(stages.values(), key=lambda stage: stage.memory["peak"]).memory
        return {"seconds": seconds, "peak": fullest["peak_allocated"], "activations": fullest["activations"]}
    print(json.dumps({
        "one": run(), "eight cards": run(tp=4), "micro-batch 4": run(micro_batch=4), "recomputed": run(recompute="full"),
        "zero 0": run(dp=4, zero=0), "zero 1": run(dp=4, zero=1), "zero 2": run(dp=4, zero=2),
        "routed": run(routed), "ep 2": run(routed, ep=2), "sequential": run(routed, ep=2, grouped_experts=False),
        "allgather": run(routed, ep=2, tp=2, dispatcher="allgather"), "alltoall": run(routed, ep=2, tp=2),
    }))
    """


def test_layouts_trade_time_for_memory_as_they_should(run_code) -> None:
    """No figure here is a measurement: only which of two layouts is faster or smaller."""
    got = json.loads(run_code(_MONOTONE, TORCH_CANN_DRY_RUN="1", TORCH_CANN_HBM_MB="262144"))
    seconds = {name: result["seconds"] for name, result in got.items()}
    peak = {name: result["peak"] for name, result in got.items()}
    assert seconds["one"] / 4 < seconds["eight cards"] < seconds["one"]
    assert peak["eight cards"] < peak["one"] < peak["micro-batch 4"]
    assert seconds["micro-batch 4"] < seconds["one"] < seconds["recomputed"]
    assert got["recomputed"]["activations"] < got["one"]["activations"]
    assert peak["zero 2"] < peak["zero 1"] < peak["zero 0"]
    assert peak["ep 2"] < peak["routed"]
    assert seconds["ep 2"] < seconds["sequential"]
    assert seconds["routed"] > seconds["one"] and seconds["allgather"] != seconds["alltoall"]


def test_bad_input_gets_one_sentence(npu_plan, tmp_path) -> None:
    config = tmp_path / "config.json"
    config.write_text("[1, 2]")
    cases = (
        (["--model", "llama2-7b", "--stage-layers", "3,x"], "whole numbers with commas"),
        (["--model", "llama2-7b", "--no-such-option"], "--help lists the options"),
        (["--model", "llama2-7b", "--top-k", "2"], "no --experts"),
        (["--model", "llama2-7b", "--recompute-layers", "2"], "go with full recomputation"),
        (["--model", "mixtral-8x7b", "--top-k", "9"], "1 to 8 experts"),
        (["--model", "mixtral-8x7b", "--ep", "3", "--npus", "6", "--global-batch", "6"], "the 8 experts"),
        (["--config", str(config)], "no table of names"),
        (["--model", "llama2-7b", "--soc", "Ascend1"], "Ascend1"),
        (["--model", "llama2-7b", "--pp", "5", "--npus", "5"], "--stage-layers"),
    )
    for arguments, message in cases:
        result = npu_plan("estimate", *arguments)
        assert result.returncode not in (0, 3), arguments
        assert message in result.stderr and len(result.stderr.strip().splitlines()) == 1, result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("explain --model llama2-7b --mfu 0", "--mfu: expected a positive number, but got '0'"),
        ("explain --model llama2-7b --tokens -5", "--tokens: expected a positive number, but got '-5'"),
        ("estimate --model llama2-7b --calibration nan", "--calibration: expected a positive number, but got 'nan'"),
        (
            "estimate --layers 2 --hidden 1024 --heads 8 --kv-heads 3 --ffn 4096 --vocab 1000 --npus 8 --global-batch 8",
            "3 key and value heads do not divide the 8 heads of queries",
        ),
        ("run --nproc-per-node 1000 train.py", "expected an integer from 1 to 64"),
    ],
)
def test_numbers_that_make_no_sense(npu_plan, arguments: str, said: str) -> None:
    done = npu_plan(*arguments.split())
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
