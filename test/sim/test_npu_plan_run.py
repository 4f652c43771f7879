"""npu-plan run: unmodified scripts, one rank or many, and one sentence for whatever goes wrong."""

import json
from pathlib import Path

import pytest

_LOOP = """
    import sys, torch, torch_npu
    m = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).npu()
    o = torch.optim.AdamW(m.parameters())
    best = 1e9
    for step in range(1000):
        loss = m(torch.randn(64, 1024, device="npu")).pow(2).mean()
        o.zero_grad(); loss.backward(); o.step()
        print(f"loss {loss.item():.3f}")
        if "branch" in sys.argv and loss.item() < best: best = loss.item()
        if "pick" in sys.argv: x = torch.randn(100, device="npu"); print(len(x[x > 0]))
        if "save" in sys.argv: torch.save(m.state_dict(), "model.pt")
        if "crash" in sys.argv: raise KeyError("no such thing")
    """

_DDP = """
    import os, torch, torch_npu, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    dist.init_process_group("hccl")
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    width = 512 + (256 if os.environ.get("UNEVEN") and dist.get_rank() == dist.get_world_size() - 1 else 0)
    m = DDP(torch.nn.Sequential(torch.nn.Linear(512, width), torch.nn.Linear(width, 512)).npu())
    o, scaler = torch.optim.SGD(m.parameters(), lr=0.1), torch.amp.GradScaler("npu")
    for _ in range(9):
        with torch.autocast("npu", dtype=torch.float16): loss = m(torch.randn(64, 512, device="npu")).float().mean()
        scaler.scale(loss).backward(); scaler.step(o); scaler.update(); o.zero_grad()
        objects = [None] * dist.get_world_size(); dist.all_gather_object(objects, {"a": 1})
    """

_PIPELINE = """
    import os, torch, torch_npu, torch.distributed as dist
    dist.init_process_group("hccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    replicas = world // 4
    stage = rank // replicas
    m = torch.nn.Linear(2048, 2048, bias=False).npu().bfloat16()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    def forward():
        x = torch.empty(4096, 2048, device="npu", dtype=torch.bfloat16)
        if stage: dist.recv(x, rank - replicas)
        y = m(x.requires_grad_())
        if stage < 3: dist.isend(y.detach(), rank + replicas)
        return x, y
    def backward(x, y):
        g = torch.empty_like(y)
        if stage < 3: dist.recv(g, rank + replicas)
        y.backward(g)
        if stage: dist.isend(x.grad, rank - replicas)
    for _ in range(9):
        held = [forward() for _ in range(3 - stage)]
        for _ in range(8 - len(held)): held.append(forward()); backward(*held.pop(0))
        for _ in range(len(held)): backward(*held.pop(0))
        o.step(); o.zero_grad()
    """


def test_a_plain_script_gets_a_whole_report(npu_plan, tmp_path: Path) -> None:
    done = npu_plan(
        "run", "--json", "r.json", "--html", "r.html", "--trace", "t.json", "--tokens-per-step", "64", script=_LOOP
    )
    assert done.returncode == 0, done.stderr
    assert "loss ?" in done.stdout
    assert "train.py:9: item() (shown or added up, never compared)" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    (rank,) = report["ranks"]
    assert report["step"]["steps_run"] == 3
    assert report["step"]["low"] < report["step"]["seconds"] < report["step"]["high"]
    assert report["tokens_per_second"] == pytest.approx(64 / report["step"]["seconds"])
    assert rank["memory"]["parameters"] == rank["memory"]["gradients"] == rank["memory"]["optimizer"] / 2
    assert sum(rank["spent_us"].values()) == pytest.approx(rank["step_us"], rel=0.02)
    assert any(site["site"].endswith("train.py:8") for site in rank["sites"])
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page
    assert "http" not in page
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {"addmm", "mm"} <= {event["name"] for event in events}


def test_a_comparison_with_an_unknown_value_names_its_line(npu_plan) -> None:
    done = npu_plan("run", script=_LOOP, after=("branch",))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "train.py:10" in done.stderr
    assert "--assume train.py:10=VALUE" in done.stderr


def test_an_answer_lets_it_go_on(npu_plan) -> None:
    assert npu_plan("run", "--assume", "train.py:10=2.5", script=_LOOP, after=("branch",)).returncode == 0


@pytest.mark.parametrize(("answer", "length"), [("30", "30"), ("25%", "25")])
def test_how_many_elements_a_mask_selects_must_be_said(npu_plan, answer: str, length: str) -> None:
    refused = npu_plan("run", script=_LOOP, after=("pick",))
    assert refused.returncode == 1
    assert "how many elements it selects" in refused.stderr
    done = npu_plan("run", "--assume", f"train.py:11={answer}", script=_LOOP, after=("pick",))
    assert done.returncode == 0, done.stderr
    assert f"\n{length}\n" in done.stdout


def test_a_checkpoint_writes_no_zeros(npu_plan, tmp_path: Path) -> None:
    done = npu_plan("run", script=_LOOP, after=("save",))
    assert done.returncode == 0, done.stderr
    assert "checkpoint not written" in done.stdout
    assert (tmp_path / "model.pt").stat().st_size < 10_000


@pytest.mark.parametrize(
    ("arguments", "after", "code", "message"),
    [
        (["--soc", "Ascend911"], (), 1, 'There is no chip "Ascend911"'),
        (["--hbm-mb", "128"], (), 3, "does not fit in HBM"),
        ([], ("crash",), 1, "the script raised KeyError: 'no such thing'"),
        (["--assume", "nonsense"], (), 1, "--assume takes file:line=value"),
    ],
)
def test_errors_are_one_sentence(npu_plan, arguments: list[str], after: tuple, code: int, message: str) -> None:
    done = npu_plan("run", *arguments, script=_LOOP, after=after)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_script(npu_plan) -> None:
    done = npu_plan("run", "nowhere.py")
    assert (done.returncode, done.stderr) == (1, "npu-plan: there is no script 'nowhere.py'\n")


def test_ddp_on_512_ranks(npu_plan, tmp_path: Path) -> None:
    """DDP's constructor, GradScaler and object collectives run unmodified; one more rank is run as a mirror."""
    done = npu_plan("run", "--nnodes", "64", "--nproc-per-node", "8", "--json", "r.json", script=_DDP)
    assert done.returncode == 0, done.stderr
    assert "Mirror check: rank 511 issues the same operators and collectives as rank 0." in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["world_size"] == 512
    assert any(row["name"] == "all_reduce" for row in report["ranks"][0]["operators"])
    assert any(entry["kind"] == "assume" for entry in report["assumptions"])


def test_ranks_that_differ_are_refused(npu_plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNEVEN", "1")
    done = npu_plan("run", "--nproc-per-node", "4", script=_DDP)
    assert done.returncode == 1
    assert "one rank cannot stand for the others" in done.stderr


def test_pipeline_stages_are_found_and_wait_for_each_other(npu_plan, tmp_path: Path) -> None:
    done = npu_plan("run", "--nnodes", "2", "--nproc-per-node", "8", "--json", "r.json", script=_PIPELINE)
    assert done.returncode == 0, done.stderr
    ranks = json.loads((tmp_path / "r.json").read_text())["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 4, 8, 12]
    bubbles = [rank["spent_us"]["late_rank"] / rank["step_us"] for rank in ranks]
    # 1F1B of 4 stages and 8 micro-batches: 3 of 11 at least; transfers add to it.
    assert all(bubble > 0.15 for bubble in bubbles)
    assert ranks[0]["memory"]["activations"] > ranks[3]["memory"]["activations"]
    for rank in ranks:  # micro-batches add to the gradients that are there
        assert 0 < max(gradients for *_, gradients in rank["memory_curve"]) <= rank["memory"]["gradients"]
