"""The command npu-plan: arguments in, one sentence per error, exit code 0 only when there is an answer and it fits."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from torch_cann import _C
from torch_cann.plan import analysis, calibration, html, perfetto, report
from torch_cann.plan.errors import PlanError
from torch_cann.plan.ranks import difference, discover, mirror_of, run_ranks
from torch_cann.plan.script import Job, Trace

_DOES_NOT_FIT = 3


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, but got {text!r}")
    return number


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--soc", default="Ascend910B2", help="chip, for example Ascend910B2; `npu-plan chips` lists them")
    parser.add_argument("--soc-file", help="TOML files with further chips or other figures, separated by colons")
    parser.add_argument("--hbm-mb", help="usable HBM per card in MiB, in place of the chip's")
    parser.add_argument("--calibration", type=float, help="measured over modelled step time of your own machine")
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--html", type=Path, help="write a self-contained page there")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("npu-plan", description="What a training run would do on NPUs that are not there.")
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run a training script dry")
    _add_outputs(run)
    run.add_argument("--nnodes", type=_positive, default=1)
    run.add_argument("--nproc-per-node", "--nproc_per_node", type=_positive, default=1)
    run.add_argument("--steps", type=_positive, default=3, help="optimizer steps to run; the last is reported")
    run.add_argument("--tokens-per-step", type=_positive, help="tokens of a global step, for tokens/s")
    run.add_argument("--assume", action="append", default=[], metavar="FILE:LINE=VALUE",
                     help="the answer where the script decides by a value that only a device computes")
    run.add_argument("--no-mirror-check", action="store_true", help="do not run a second member of the first rank's groups")
    run.add_argument("--trace", type=Path, help="write the last step for ui.perfetto.dev there")
    run.add_argument("-m", "--module", action="store_true", help="the script is a module")
    run.add_argument("script")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    run.set_defaults(action=_run)

    chips = commands.add_parser("chips", help="list the chips and their figures")
    chips.add_argument("--soc-file")
    chips.set_defaults(action=_chips)
    return parser


def _chips(_: argparse.Namespace) -> int:
    print(f"{'chip':<20}{'cube cores':>11}{'MHz':>7}{'TFLOPS fp16':>13}{'HBM GiB':>9}{'GB/s':>7}")
    for name in _C._sim.soc_names():
        soc = _C._sim.soc(name)
        print(f"{name:<20}{soc['cube_cores']:>11}{soc['cube_mhz']:>7.0f}{soc['peak_fp16_tflops']:>13.1f}"
              f"{soc['usable_hbm_bytes'] / 2**30:>9.1f}{soc['hbm_gbps']:>7.0f}")
    return 0


def _check_world(job: Job) -> None:
    if job.world_size > 1_000_000:
        raise PlanError(f"{job.world_size} ranks are more than a cluster has; check --nnodes and --nproc-per-node")


def _failures(traces: list[Trace]) -> str | None:
    for trace in traces:
        if trace.failure and not trace.out_of_memory:
            return f"rank {trace.rank}: {trace.failure}"
    return None


def _check_mirror(job: Job, traces: list[Trace]) -> str | None:
    """What to print about symmetry; raises PlanError when the ranks left out do something else."""
    rank = mirror_of(job, traces)
    if rank is None:
        return None
    second = run_ranks(job, [rank], quiet=True)[0]
    if second.failure:
        raise PlanError(f"rank {rank}, which should do what rank {traces[0].rank} does, failed: {second.failure}")
    why = difference(traces[0], second)
    if why:
        raise PlanError(f"one rank cannot stand for the others: {why}. Pass --no-mirror-check to report it all the same")
    return f"Mirror check: rank {rank} issues the same operators and collectives as rank {traces[0].rank}."


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
    _C._sim.soc(arguments.soc)
    traces = discover(job)
    if failure := _failures(traces):
        raise PlanError(failure)
    full = [trace for trace in traces if trace.out_of_memory]
    mirror = None
    if not full and job.world_size > 1 and not arguments.no_mirror_check:
        mirror = _check_mirror(job, traces)
    summary = analysis.summarize(
        traces, calibration.given(arguments.calibration), arguments.tokens_per_step, job.world_size
    )
    summary["mirror"] = mirror
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


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return arguments.action(arguments)
    except PlanError as error:
        print(f"npu-plan: {error.args[0]}", file=sys.stderr)
        return error.args[1] if len(error.args) > 1 else 1
    except (ValueError, RuntimeError, OSError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            print(f"npu-plan: {error}", file=sys.stderr)
            return _DOES_NOT_FIT
        print(f"npu-plan: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
