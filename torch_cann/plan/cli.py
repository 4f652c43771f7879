"""The command npu-plan: arguments in, one sentence per error, exit code 0 only when there is an answer and it fits."""

from __future__ import annotations

import argparse
import gc
import math
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch

from torch_cann import _C
from torch_cann.plan import analysis, calibration, explain, html, output, perfetto, report, shapes, tables
from torch_cann.plan.errors import PlanError
from torch_cann.plan.exchange import PostOffice
from torch_cann.plan.layout import Layout
from torch_cann.plan.ranks import difference, discover, mirror_of, run_mirror
from torch_cann.plan.script import Job, Trace
from torch_cann.plan.values import Assumptions

_DOES_NOT_FIT = 3
_INTERRUPTED = 130  # as shells say it of SIGINT


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, but got {text!r}")
    return number


def _positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, but got {text!r}")
    return number


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--soc", default="Ascend910B2", help="chip, for example Ascend910B2; `npu-plan chips` lists them"
    )
    parser.add_argument("--soc-file", help="TOML files with further chips or other figures, separated by colons")
    parser.add_argument("--hbm-mb", type=_positive, help="usable HBM per card in MiB, in place of the chip's")
    parser.add_argument(
        "--calibration", type=_positive_number, help="measured over modelled step time of your own machine"
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--html", type=Path, help="write a self-contained page there")


class _Parser(argparse.ArgumentParser):
    """Wrong arguments get one sentence, not the list of all options. Options are not abbreviated: the device's are read
    before this parser is."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help lists the options\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("npu-plan", description="What a training run would do on NPUs that are not there.")
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run a training script dry")
    _add_outputs(run)
    run.add_argument("--nnodes", type=_positive, default=1)
    run.add_argument("--nproc-per-node", "--nproc_per_node", type=_positive, default=1)
    run.add_argument("--steps", type=_positive, default=3, help="optimizer steps to run; the last is reported")
    run.add_argument("--tokens-per-step", type=_positive, help="tokens of a global step, for tokens/s")
    run.add_argument(
        "--assume",
        action="append",
        default=[],
        metavar="FILE:LINE=VALUE",
        help="the answer where the script decides by a value that only a device computes",
    )
    run.add_argument(
        "--no-mirror-check", action="store_true", help="do not run a second member of the first rank's groups"
    )
    run.add_argument("--trace", type=Path, help="write the last step for ui.perfetto.dev there")
    run.add_argument("-m", "--module", action="store_true", help="the script is a module")
    run.add_argument("script")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    run.set_defaults(action=_run)

    _add_estimating(commands)
    chips = commands.add_parser("chips", help="list the chips and their figures")
    chips.add_argument("--soc-file")
    chips.set_defaults(action=_chips)
    return parser


def _add_estimating(commands: Any) -> None:
    estimate = commands.add_parser("estimate", help="step time and memory of a transformer, without a script")
    _add_outputs(estimate)
    shapes.add_model(estimate)
    shapes.add_layout(estimate, fixed=True)
    estimate.set_defaults(action=_estimate)

    search = commands.add_parser("search", help="the best layout of a transformer on a number of NPUs")
    _add_outputs(search)
    shapes.add_model(search)
    shapes.add_layout(search, fixed=False)
    search.add_argument("--npus", type=_positive, required=True)
    search.add_argument("--limit", type=_positive, default=200, help="most layouts to run")
    search.set_defaults(action=_search)

    explained = commands.add_parser("explain", help="the sizing arithmetic of a model, and where its shortcuts hold")
    _add_outputs(explained)
    shapes.add_model(explained)
    explained.add_argument("--sequence", type=_positive, default=2048)
    explained.add_argument("--tokens", type=_positive_number, default=1e12, help="of the whole training")
    explained.add_argument("--npus", type=_positive, default=8)
    explained.add_argument("--mfu", type=_positive_number, default=0.45)
    explained.add_argument(
        "--gbps", type=_positive_number, default=100, help="bandwidth for the gradients, 1e9 bytes/s"
    )
    explained.add_argument("--batch", type=int, default=0, help="with --step-seconds: a claim to check")
    explained.add_argument("--step-seconds", type=float, default=0.0)
    explained.set_defaults(action=_explain)

    exported = commands.add_parser("export", help="modelled times of operators and collectives as CSV")
    exported.add_argument("--soc", default="Ascend910B2")
    exported.add_argument("--soc-file")
    exported.add_argument("--trace", type=Path, help="a JSON trace that `run --trace` wrote: its operators")
    exported.add_argument("output", type=Path)
    exported.set_defaults(action=_export)

    calibrated = commands.add_parser("calibrate", help="compare a measured CSV with the model")
    calibrated.add_argument("--soc", default="Ascend910B2")
    calibrated.add_argument("--soc-file")
    calibrated.add_argument("measured", type=Path)
    calibrated.set_defaults(action=_calibrate)


def _estimate(arguments: argparse.Namespace) -> int:
    from torch_cann.plan import estimate

    model, layout = shapes.model_of(arguments), shapes.layout_of(arguments)
    summary = estimate.summarize(model, layout, calibration.given(arguments.calibration, bool(model.experts)))
    if arguments.hbm_mb:
        for rank in summary["ranks"]:
            rank["memory"]["capacity"] = arguments.hbm_mb << 20
    summary["mirror"] = (
        f"Pipeline bubble {summary['bubble']:.1%}; stages run: {len(summary['ranks'])} of {layout.pp}, the others are equal."
    )
    name = arguments.model or (arguments.config.parent.name if arguments.config else "") or "a transformer"
    _write(summary, f"npu-plan estimate {name} {layout.describe()}", arguments)
    over = [rank for rank in summary["ranks"] if rank["memory"]["peak"] > rank["memory"]["capacity"]]
    if over:
        memory = over[0]["memory"]
        raise PlanError(
            f"rank {over[0]['rank']} needs {memory['peak'] / 2**30:.1f} GiB of {memory['capacity'] / 2**30:.1f}: "
            f"try {_remedies(layout)}",
            _DOES_NOT_FIT,
        )
    return 0


def _remedies(layout: Layout) -> str:
    """What takes less memory and is not in use yet."""
    ways = ["more tensor or pipeline parallelism"]
    if layout.dp * layout.cp > 1 and layout.zero < 2:
        ways.append(f"--zero {layout.zero + 1}")
    if layout.micro_batch > 1:
        ways.append("a smaller --micro-batch")
    if layout.recompute != "full":
        ways.append("--recompute full")
    return " or ".join([", ".join(ways[:-1]), ways[-1]]) if len(ways) > 1 else ways[0]


def _search(arguments: argparse.Namespace) -> int:
    from torch_cann.plan import search

    model, base = shapes.model_of(arguments), shapes.layout_of(arguments)
    factor = calibration.given(arguments.calibration).factor
    capacity = arguments.hbm_mb << 20 if arguments.hbm_mb else None
    found, possible = search.search(model, base, arguments.npus, factor, arguments.limit, capacity)
    tokens = base.global_batch * base.sequence
    best = {id(candidate) for candidate in search.frontier(found)}
    print(
        f"{len(found)} of {possible} layouts of {arguments.npus} x {arguments.soc}; * is on the frontier of time and memory"
    )
    for candidate in found[:20]:
        mark = "*" if id(candidate) in best else " "
        fits = "" if candidate.fits else "  does not fit"
        print(
            f" {mark} {candidate.layout.describe():<46}{report.duration(candidate.seconds):>10}"
            f"{tokens / candidate.seconds:>14,.0f} tokens/s{candidate.peak / 2**30:>8.1f} GiB{fits}"
        )
    if not found[0].fits:
        raise PlanError("none of these layouts fits in HBM", _DOES_NOT_FIT)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    soc = _C._sim.soc(arguments.soc)
    print(
        explain.explain(
            shapes.model_of(arguments),
            soc,
            sequence=arguments.sequence,
            tokens=arguments.tokens,
            world=arguments.npus,
            mfu=arguments.mfu,
            gbps=arguments.gbps,
            batch=arguments.batch,
            step_seconds=arguments.step_seconds,
        )
    )
    print("\n" + explain.article(soc))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    print(f"{tables.export(arguments.output, arguments.trace)} rows written to {arguments.output}")
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    print(tables.compare(arguments.measured))
    return 0


def _chips(_: argparse.Namespace) -> int:
    print(f"{'chip':<20}{'cube cores':>11}{'MHz':>7}{'TFLOPS fp16':>13}{'HBM GiB':>9}{'GB/s':>7}")
    for name in _C._sim.soc_names():
        soc = _C._sim.soc(name)
        print(
            f"{name:<20}{soc['cube_cores']:>11}{soc['cube_mhz']:>7.0f}{soc['peak_fp16_tflops']:>13.1f}"
            f"{soc['usable_hbm_bytes'] / 2**30:>9.1f}{soc['hbm_gbps']:>7.0f}"
        )
    return 0


def _check_world(job: Job) -> None:
    if job.world_size > 1_000_000:
        raise PlanError(f"{job.world_size} ranks are more than a cluster has; check --nnodes and --nproc-per-node")


def _failures(traces: list[Trace]) -> str | None:
    for trace in traces:
        if trace.failure and not trace.out_of_memory:
            return f"rank {trace.rank}: {trace.failure}"
    return None


def _check_mirror(job: Job, traces: list[Trace], office: PostOffice) -> tuple[str | None, list[Trace]]:
    """What to print about symmetry, and the traces to report: a rank that takes part in the same communication but works
    differently in between is one of them. Raises PlanError when the ranks left out do something else."""
    mirror = mirror_of(job, traces)
    if mirror is None:
        return None, traces
    rank, like = mirror
    second = run_mirror(job, rank, office.told[like.rank])
    if second.failure:
        raise PlanError(f"rank {rank}, which should do what rank {like.rank} does, failed: {second.failure}")
    reasons = [difference(trace, second) for trace in traces]
    if None in reasons:
        same = traces[reasons.index(None)].rank
        return f"Mirror check: rank {rank} issues the same operators and collectives as rank {same}.", traces
    if difference(like, second, only_communication=True) is None:
        sentence = (
            f"Mirror check: rank {rank} issues the same collectives as rank {like.rank}, with other operators in between "
            f"({difference(like, second)}), so it is in the report too; ranks that are not are taken to be like these."
        )
        return sentence, [*traces, second]
    raise PlanError(
        f"one rank cannot stand for the others: {reasons[0]}. Pass --no-mirror-check to report it all the same"
    )


def _run(arguments: argparse.Namespace) -> int:
    job = Job(
        script=arguments.script,
        arguments=arguments.arguments,
        nnodes=arguments.nnodes,
        nproc_per_node=arguments.nproc_per_node,
        steps=arguments.steps,
        assume=arguments.assume,
        module=arguments.module,
    )
    _check_world(job)
    answers = Assumptions.parse(job.assume)
    _C._sim.soc(arguments.soc)
    traces, office = discover(job)
    if failure := _failures(traces):
        raise PlanError(failure)
    full = [trace for trace in traces if trace.out_of_memory]
    mirror = None
    if not full and job.world_size > 1 and not arguments.no_mirror_check:
        mirror, traces = _check_mirror(job, traces, office)
    summary = analysis.summarize(
        traces, calibration.given(arguments.calibration), arguments.tokens_per_step, job.world_size
    )
    summary["mirror"] = mirror
    for answer in answers.unused({entry["site"] for entry in summary["assumptions"]}):
        summary["notes"].append(f"--assume {answer} was not needed: no rank asked for a value there.")
    _write(summary, f"npu-plan run {job.script}", arguments)
    if arguments.trace:
        perfetto.write(analysis.place(traces), arguments.trace)
    if full:
        raise PlanError(f"rank {full[0].rank} does not fit in HBM: {full[0].failure}", _DOES_NOT_FIT)
    return 0


def _write(summary: dict[str, Any], title: str, arguments: argparse.Namespace) -> None:
    print(report.text(summary, title))
    if arguments.json:
        report.write_json(summary, arguments.json)
    if arguments.html:
        html.write(summary, title, arguments.html)


def _answer(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    gc.freeze()  # what the imports made stays: collections, of which estimates ask for one a stage, need not look at it
    try:
        return arguments.action(arguments)
    except PlanError as error:
        print(f"npu-plan: {error.args[0]}", file=sys.stderr)
        return error.args[1] if len(error.args) > 1 else 1
    except KeyboardInterrupt:
        print("npu-plan: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except (ValueError, RuntimeError, OSError) as error:
        if isinstance(error, BrokenPipeError) and output.reader_is_gone():
            raise
        if isinstance(error, torch.OutOfMemoryError):
            print(f"npu-plan: {error}", file=sys.stderr)
            return _DOES_NOT_FIT
        print(f"npu-plan: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1


def main(argv: list[str]) -> int:
    """Runs the command; the number returned is the exit status."""
    try:
        try:
            return _answer(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not output.reader_is_gone():
            raise
        output.discard()
        return output.NOBODY_READS
