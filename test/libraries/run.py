"""Runs libraries that have an NPU path with tiny random models, offline: ``python test/libraries/run.py [CASE...]``.

Makes an environment of its own (by default in build/libraries) that sees the packages of the Python it is started with,
torch and torch_cann among them, and installs there what the cases need, in the versions of constraints.txt. Prints a
table; the exit code is 1 when a case failed. The torch of the starting environment is never replaced.

With --of-the-day it runs one case, so that continuous integration meets all of them in turn and stays short: another one
each day, or the one that the variable LIBRARY_CASE names. Without a package index it says so and succeeds.
"""

import argparse
import datetime
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Case:
    """A script of cases/, the arguments of Python before its path, and those after it.

    `packages` are those the script imports, the library it is about first. Cases share one environment unless they name
    another: PyPI's torchvision must not be where other libraries would import it on sight, and stop; torchtitan wants older
    packages.
    """

    packages: tuple[str, ...]
    script: str
    launcher: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    minutes: float = 5
    environment: str = "shared"


class NoIndex(Exception):
    """pip found no package index; the text is what it said last."""


_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_ACCELERATE = ("-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0")
_WRAP = ("--fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", "--fsdp_min_num_params", "1")
_FSDP = ("--use_fsdp", *_WRAP, "--fsdp_version")
CASES = {
    "trainer": Case(("transformers", "accelerate"), "transformers_trainer.py"),
    "transformers-npu-paths": Case(("transformers", "accelerate"), "transformers_npu_paths.py"),
    "trainer-2-cards": Case(("transformers", "accelerate"), "transformers_trainer.py", _TORCHRUN),
    "accelerate-ddp": Case(("accelerate",), "accelerate_loop.py", (*_ACCELERATE, "--multi_gpu")),
    "accelerate-npu-paths": Case(("accelerate",), "accelerate_npu_paths.py"),
    "accelerate-fsdp1": Case(("accelerate",), "accelerate_loop.py", (*_ACCELERATE, *_FSDP, "1")),
    "accelerate-fsdp2": Case(("accelerate",), "accelerate_loop.py", (*_ACCELERATE, *_FSDP, "2")),
    "peft-lora": Case(("peft", "transformers"), "peft_lora.py"),
    "trl-sft": Case(("trl", "datasets==5.2.0", "peft", "transformers"), "trl_sft.py"),
    "deepspeed-zero1-2": Case(("deepspeed",), "deepspeed_zero.py", _TORCHRUN, ("1", "2")),
    "deepspeed-zero3": Case(
        ("deepspeed",), "deepspeed_zero.py", _TORCHRUN, ("3",), variables={"TORCH_CANN_SOC": "Ascend910_95"}
    ),
    "deepspeed-npu-paths": Case(("deepspeed",), "deepspeed_npu_paths.py", (*_TORCHRUN[:-1], "1")),
    "lightning-fit": Case(("lightning",), "lightning_fit.py"),
    "diffusers-unet": Case(("diffusers",), "diffusers_unet.py"),
    "diffusers-npu-paths": Case(("diffusers",), "diffusers_npu_paths.py"),
    "timm-vit": Case(("timm", "torchvision"), "timm_vit.py", environment="timm"),
    "torchtitan-fsdp2-tp": Case(
        ("torchtitan", "datasets==4.7.0", "triton"),
        "torchtitan_llama.py",
        (*_TORCHRUN[:-1], "4"),
        ("--tensor-parallel",),
        environment="torchtitan",
    ),
    "ray-tasks": Case(("ray",), "ray_tasks.py"),
}


def _case_of_the_day() -> str:
    return os.environ.get("LIBRARY_CASE") or list(CASES)[datetime.date.today().toordinal() % len(CASES)]


def _install(folder: Path, packages: tuple[str, ...]) -> Path:
    """The interpreter of the environment in ``folder``, which is made if absent and has ``packages`` afterwards.

    Raises NoIndex, or CalledProcessError for every other reason why pip failed.
    """
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "starting_environment.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--retries", "2"]
    constraints = HERE / "constraints.txt"
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-build-isolation", "-c", constraints, *packages], check=False
    )
    if done.returncode != 0:
        index = subprocess.run([*pip, "index", "versions", packages[0]], check=False, capture_output=True, text=True)
        if index.returncode != 0:
            raise NoIndex(index.stderr.strip().splitlines()[-1])
        done.check_returncode()
    return python


def _variables(case: Case) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_AUTH_MODE": "disabled",  # else ray writes a token into the home folder
        **case.variables,
    }


def _run(python: Path, case: Case, log: Path) -> str:
    """ "passed", "failed" or "timed out"; what it printed goes to ``log``."""
    command = [python, *case.launcher, HERE / "cases" / case.script, *case.arguments]
    with tempfile.TemporaryDirectory() as folder, open(log, "w") as output:
        try:
            done = subprocess.run(
                command, check=False, cwd=folder, env=_variables(case), stdout=output, stderr=subprocess.STDOUT,
                timeout=case.minutes * 60,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "timed out"
    return "passed" if done.returncode == 0 else "failed"


def _version(python: Path, library: str) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version({library!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _end_of(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if left out")
    parser.add_argument("--of-the-day", action="store_true", help="one case: today's, or the one of LIBRARY_CASE")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "libraries", help="for environments and logs")
    options = parser.parse_args()
    options.folder = options.folder.resolve()  # cases run in a folder of their own
    names = [_case_of_the_day()] if options.of_the_day else options.cases or list(CASES)
    unknown = set(names) - set(CASES)
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    failed = False
    print(f"{'case':<22} {'library':<22} {'result':<10} {'s':>5}  log")
    for name in names:
        case, log = CASES[name], options.folder / f"{name}.log"
        start = time.monotonic()
        try:
            python = _install(options.folder / case.environment, case.packages)
        except NoIndex as reason:
            if not options.of_the_day:
                raise
            print(f"{name:<22} skipped: no package index within reach ({reason})")
            break
        result = _run(python, case, log)
        library = f"{case.packages[0]} {_version(python, case.packages[0])}"
        print(f"{name:<22} {library:<22} {result:<10} {time.monotonic() - start:>5.0f}  {log}", flush=True)
        if result != "passed":
            failed = True
            print(_end_of(log), file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
