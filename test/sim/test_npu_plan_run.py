"""npu-plan run: unmodified scripts, one rank or many, and one sentence for whatever goes wrong."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

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
        if "crash" in sys.argv: raise ValueError if "silently" in sys.argv else KeyError("no such thing")
        if "exit" in sys.argv: sys.exit("no data given" if "please" in sys.argv else 3)
        if "interrupt" in sys.argv: raise KeyboardInterrupt
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
    done = npu_plan("run", "--assume", "train.py:10=2.5", "--assume", "train.py:1=0", script=_LOOP, after=("branch",))
    assert done.returncode == 0, done.stderr
    assert "--assume train.py:1=0 was not needed" in done.stdout
    assert "train.py:10=2.5 was not needed" not in done.stdout


_READS = """
    import json, math, statistics, sys, torch, torch_npu
    m = torch.nn.Linear(8, 8).npu()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        loss = m(torch.randn(4, 8, device="npu")).pow(2).mean()
        loss.backward(); o.step()
        x, n = loss.item(), (m.weight > 0).sum().item()
        exec(sys.argv[1])
    """


@pytest.mark.parametrize(
    ("read", "shown"),
    [
        ("print(f'<{x:.3f} {n:d} {n / 4 + x} {divmod(n, 3)} {sum([n, n])}>')", "<? ? ? (?, ?) ?>"),
        ("print(json.dumps([n]), statistics.fmean([x]))", "[null] nan"),
        ("assert math.isfinite(x) and not math.isnan(x) and not math.isinf(n); print('finite')", "finite"),
        (
            "checks = [torch.isnan(loss), loss.isinf(), ~loss.cpu().isfinite(), ~torch.isfinite(m.weight.grad).all()]\n"
            "assert not any(checks); print('finite tensors', m.weight.tolist()[7][7])",
            "finite tensors ?",
        ),
        ("torch.nn.utils.clip_grad_norm_(m.parameters(), 1, error_if_nonfinite=True); print('clipped')", "clipped"),
        ("print('tensors', type(loss * x), type(n * loss), (loss / n).shape, loss.div_(n))", "tensors <class"),
    ],
)
def test_unknown_numbers_can_be_shown_and_calculated_with(npu_plan, read: str, shown: str) -> None:
    done = npu_plan("run", script=_READS, after=(read,))
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.parametrize(
    "read",
    [
        "range(n)",
        "[1, 2][n]",
        "'%d' % n",
        "int(x)",
        "torch.empty(n)",
        "loss.new_empty((n, 4))",
        "loss.new_empty(n + 1, 4)",
        "loss.expand(sum([n, n]))",
        "n == 3",
        "max(0.0, x)",
        "math.floor(x)",
        "statistics.mean([x])",
    ],
)
def test_unknown_numbers_decide_nothing(npu_plan, read: str) -> None:
    """C code too gets an error of which the sentence tells the line, and never a number that looks like one."""
    done = npu_plan("run", script=_READS, after=(read,))
    assert done.returncode == 1
    # The line that read it, or that which made a tensor's size of it.
    assert re.search(r"train\.py:([89]): .* --assume train\.py:\1=VALUE\n$", done.stderr)


@pytest.mark.parametrize(
    ("read", "shown"),
    [
        (
            "print(c, f'{c:.2f}', c.item(), (c * 2 + 1).tolist(), k)",
            "tensor(?, size=(), dtype=torch.float32) ? ? ? tensor(?",
        ),
        ("print('back', float(c), c.numpy(), k.npu().device, (c + k).dtype)", "back nan nan npu:0 torch.float32"),
        ("torch.save({'best': c}, 'best.pt'); print('saved', torch.stack([c, c]).mean().item())", "saved ?"),
    ],
)
def test_copies_on_the_host_can_be_shown(npu_plan, read: str, shown: str) -> None:
    done = npu_plan(
        "run", script=_READS, after=("c, k = loss.detach().cpu(), (m.weight > 0).sum().to('cpu'); " + read,)
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert "copied to the host as NaN" in done.stdout


@pytest.mark.parametrize("read", ["c < 3", "not c", "c.item() > 0", "k == 5", "int(k)", "k.npu()"])
def test_copies_on_the_host_decide_nothing(npu_plan, read: str) -> None:
    script = f"c, k = loss.cpu(), (m.weight > 0).sum().cpu(); print('chosen' if {read} else 'other')"
    done = npu_plan("run", script=_READS, after=(script,))
    assert done.returncode == 1
    assert re.search(r"train\.py:(9|1): .* --assume .*:\1=VALUE\n$", done.stderr)
    assert "chosen" not in done.stdout
    assert "other" not in done.stdout


def test_a_real_checkpoint_is_kept_and_a_dry_one_is_read_back(npu_plan, tmp_path: Path) -> None:
    torch.save({"weights": torch.ones(3)}, tmp_path / "real.pt")
    before = (tmp_path / "real.pt").read_bytes()
    again = "torch.save({'m': m.state_dict(), 'step': 7}, 'dry.pt'); c = torch.load('dry.pt', map_location='cpu')"
    script = f"torch.save(m.state_dict(), 'real.pt'); {again}; m.load_state_dict(c['m']); print('read', c['step'])"
    for _ in range(2):  # the second time there is a dry one
        done = npu_plan("run", script=_READS, after=(script,))
        assert done.returncode == 0, done.stderr
        assert "read 7" in done.stdout
    assert (tmp_path / "real.pt").read_bytes() == before


_ON_THE_HOST = """
    import re, torch, torch_npu
    m = torch.nn.Linear(32768, 32768)
    torch.nn.init.trunc_normal_(m.weight)
    small = torch.nn.Linear(16, 16)
    assert small.weight.std() > 0
    m.npu()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m(torch.randn(4, 32768, device="npu")).mean().backward(); o.step()
    kib = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
    assert kib < 2 << 20, kib
    """


def test_a_model_of_4_gib_is_built_on_the_host_without_memory(npu_plan) -> None:
    done = npu_plan("run", "--steps", "2", script=_ON_THE_HOST)
    assert done.returncode == 0, done.stderr
    assert "Random initial values of 8.00 GiB on the host were not drawn" in done.stdout


def test_a_value_that_is_read_makes_the_host_wait(npu_plan, tmp_path: Path) -> None:
    """Without, the host would be steps ahead of the device."""
    shares = []
    for read in ("pass", "[loss.item() for _ in range(200)]"):
        npu_plan("run", "--json", "r.json", script=_READS.replace("x, n = ", "#"), after=(read,))
        report = json.loads((tmp_path / "r.json").read_text())
        shares.append(report["ranks"][0]["spent_us"]["copy"])
    assert shares[1] > shares[0] + 100


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
        ([], ("crash", "silently"), 1, "train.py:13: the script raised ValueError\n"),
        ([], ("exit",), 1, "train.py:14: the script ended itself with exit code 3"),
        ([], ("exit", "please"), 1, "train.py:14: the script ended itself saying: no data given"),
        ([], ("interrupt",), 1, "train.py:15: the script raised KeyboardInterrupt"),
        (["--nproc", "8"], (), 2, "unrecognized arguments"),
        (["--assume", "nonsense"], (), 1, "--assume takes file:line=value"),
        (["--assume", "train.py:10=much"], (), 1, "--assume train.py:10=much: expected a number"),
    ],
)
def test_errors_are_one_sentence(npu_plan, arguments: list[str], after: tuple, code: int, message: str) -> None:
    done = npu_plan("run", *arguments, script=_LOOP, after=after)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("lines", [0, 1, 100_000])
def test_output_that_nobody_reads_ends_the_command_quietly(npu_plan, tmp_path: Path, lines: int) -> None:
    """As behind `head`: before the script prints, while it does, and in the report."""
    (tmp_path / "train.py").write_text(
        f"import torch, torch_npu\nfor i in range({lines}): print(i, flush={lines < 9})\ntorch.ones(4, device='npu').add_(1)\n"
    )
    read, write = os.pipe()
    os.close(read)
    try:
        done = npu_plan("run", "train.py", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_script_whose_optimizer_never_steps_is_said_to_be_one(npu_plan, tmp_path: Path) -> None:
    script = _LOOP.replace("o.step()", "None").replace("range(1000)", "range(3)")
    done = npu_plan("run", "--json", "r.json", script=script)
    assert done.returncode == 0, done.stderr
    assert "no optimizer step was seen" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["step"]["steps_run"] == 0
    assert "no optimizer step was seen" not in npu_plan("run", script=_LOOP).stdout


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


def test_ddp_finds_that_ranks_have_other_parameters(npu_plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its constructor compares the shapes that rank 0 broadcasts, which the mirror is told."""
    monkeypatch.setenv("UNEVEN", "1")
    done = npu_plan("run", "--nproc-per-node", "4", script=_DDP)
    assert done.returncode == 1
    assert "rank 3, which should do what rank 0 does, failed" in done.stderr
    assert "appears not to match sizes" in done.stderr


_UNEVEN = """
    import os, torch, torch_npu, torch.distributed as dist
    dist.init_process_group("hccl")
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    m = torch.nn.Linear(64, 64).npu()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m(torch.randn(8, 64, device="npu")).mean().backward(); o.step()
    dist.all_reduce(torch.zeros(64 + dist.get_rank(), device="npu"))
    """


def test_ranks_that_differ_are_refused(npu_plan) -> None:
    done = npu_plan("run", "--nproc-per-node", "4", script=_UNEVEN)
    assert done.returncode == 1
    assert "one rank cannot stand for the others" in done.stderr
    assert done.stderr.count("\n") == 1


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


_SCHEDULES = """
    import os, sys, torch, torch_npu, torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
    dist.init_process_group("hccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("npu", int(os.environ["LOCAL_RANK"]))
    torch.npu.set_device(device)
    kind, micro, width = sys.argv[1], int(sys.argv[2]), 4096
    def stage(index, stages):
        layers = [torch.nn.Linear(width, width, bias=False) for _ in range(4)]
        return PipelineStage(torch.nn.Sequential(*layers).to(device, torch.bfloat16), index, stages, device)
    loss = lambda y, t: (y - t).float().pow(2).mean()
    if kind == "interleaved":
        stages = [stage(rank + world * chunk, 2 * world) for chunk in range(2)]
        schedule = ScheduleInterleaved1F1B(stages, micro, loss_fn=loss)
    else:
        stages = [stage(rank, world)]
        schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[kind](stages[0], micro, loss_fn=loss)
    o = torch.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=0.1)
    for _ in range(5):
        x = torch.randn(micro * 4096, width, device=device, dtype=torch.bfloat16)
        schedule.step(*((x,) if rank == 0 else ()), **({"target": x} if rank == world - 1 else {}))
        o.step(); o.zero_grad()
    """


@pytest.mark.parametrize(("kind", "ranks", "micro"), [("gpipe", 2, 4), ("1f1b", 4, 8), ("interleaved", 2, 4)])
def test_schedules_of_torch_pipelining(npu_plan, tmp_path: Path, kind: str, ranks: int, micro: int) -> None:
    """The stages tell each other the shapes of what they will send, and wait for each other about as the formula says."""
    done = npu_plan(
        "run",
        "--nproc-per-node",
        str(ranks),
        "--steps",
        "2",
        "--json",
        "r.json",
        "--html",
        "r.html",
        script=_SCHEDULES,
        after=(kind, str(micro)),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert [rank["rank"] for rank in report["ranks"]] == list(range(ranks))
    pipeline = report["pipeline"]
    work = micro * (2 if kind == "interleaved" else 1)
    assert (pipeline["ranks"], pipeline["micro_batches"]) == (ranks, micro)
    assert pipeline["bubble_by_formula"] == pytest.approx((ranks - 1) / (work + ranks - 1))
    # Transfers take time, and the last stage has the loss to compute.
    assert pipeline["bubble"] == pytest.approx(pipeline["bubble_by_formula"], rel=0.4)
    assert f"{pipeline['bubble_by_formula']:.1%}" in done.stdout
    assert f"{pipeline['bubble']:.1%}" in (tmp_path / "r.html").read_text()


_TELLING = """
    import sys, torch, torch_npu, torch.distributed as dist
    dist.init_process_group("cpu:gloo,npu:hccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.npu.set_device(rank)
    seed = torch.tensor([7 * rank + 3]).npu()
    dist.broadcast(seed, 1)
    assert seed.item() == 10
    box = [{"from": rank} if rank == 2 else None]
    dist.broadcast_object_list(box, 2)
    assert box[0] == {"from": 2}
    mine, theirs = torch.tensor([rank]).npu(), torch.zeros(1, dtype=torch.long).npu()
    received, sent = dist.irecv(theirs, (rank - 1) % world), dist.isend(mine, (rank + 1) % world)
    received.wait(); sent.wait()
    assert theirs.item() == (rank - 1) % world
    pair = dist.new_group([1, 2], backend="gloo")
    if rank == 1: dist.send(torch.arange(3.0), 2, group=pair)
    if rank == 2:
        dist.recv(host := torch.zeros(3), 1, group=pair)
        assert host.tolist() == [0, 1, 2]
    if "hang" in sys.argv and rank < 2: dist.recv(theirs, 1 - rank)
    if "never" in sys.argv and rank == 2: dist.recv(host, 1, group=pair)
    m = torch.nn.Linear(4, 4).npu()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m(torch.ones(4, 4).npu()).sum().backward(); o.step()
    """


def test_ranks_tell_each_other_what_they_know(npu_plan) -> None:
    """Broadcast from a root, objects, a ring of receives posted before the sends, and CPU tensors of a group of two."""
    done = npu_plan("run", "--nproc-per-node", "3", script=_TELLING)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("how", "message"), [("hang", "wait for each other for ever"), ("never", "which never sends it")]
)
def test_a_message_that_never_comes_is_named(npu_plan, how: str, message: str) -> None:
    done = npu_plan("run", "--nproc-per-node", "3", script=_TELLING, after=(how,))
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


_ZERO = """
    import os, torch, torch_npu, torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel as DDP
    dist.init_process_group("hccl")
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    widths = [512, 1536, 512, 256, 1024]
    m = DDP(torch.nn.Sequential(*[torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])]).npu())
    o = ZeroRedundancyOptimizer(m.parameters(), torch.optim.AdamW, lr=1e-4)
    for _ in range(4):
        m(torch.randn(64, 512, device="npu")).mean().backward(); o.step(); o.zero_grad()
    """


def test_owners_of_different_parameters_are_reported_together(npu_plan, tmp_path: Path) -> None:
    """With ZeRO-1 ranks update parameters of their own, between collectives that are the same."""
    done = npu_plan("run", "--nproc-per-node", "4", "--json", "r.json", script=_ZERO)
    assert done.returncode == 0, done.stderr
    assert "rank 3 issues the same collectives as rank 0, with other operators in between" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    first, second = report["ranks"]
    assert (first["rank"], second["rank"]) == (0, 3)
    assert first["memory"]["optimizer"] != second["memory"]["optimizer"]
