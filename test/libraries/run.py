"""Runs libraries that have an NPU path with tiny random models, offline: ``python test/libraries/run.py [CASE...]``.

Makes an environment of its own (by default build/libraries) that sees the packages of the Python it is started with,
torch and torch_cann among them, and installs requirements.txt there. Prints a table; the exit code is 1 when a case
failed. The torch of the starting environment is never replaced.
"""

import argparse
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Case:
    """A script of cases/, the arguments of Python before its path, and those after it.

    `apart`: packages for this case alone. Other libraries would import PyPI's torchvision on sight, and stop.
    """

    library: str
    script: str
    launcher: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    minutes: float = 5
    apart: tuple[str, ...] = ()


_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_ACCELERATE = ("-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0")
_WRAP = ("--fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", "--fsdp_min_num_params", "1")
_FSDP = ("--use_fsdp", "--fsdp_version", "2", *_WRAP)
CASES = {
    "trainer": Case("transformers", "transformers_trainer.py"),
    "trainer-2-cards": Case("transformers", "transformers_trainer.py", _TORCHRUN),
    "accelerate-ddp": Case("accelerate", "accelerate_loop.py", (*_ACCELERATE, "--multi_gpu")),
    "accelerate-fsdp2": Case("accelerate", "accelerate_loop.py", (*_ACCELERATE, *_FSDP)),
    "peft-lora": Case("peft", "peft_lora.py"),
    "trl-sft": Case("trl", "trl_sft.py"),
    "deepspeed-zero1-2": Case("deepspeed", "deepspeed_zero.py", _TORCHRUN, ("1", "2")),
    "lightning-fit": Case("lightning", "lightning_fit.py"),
    "diffusers-unet": Case("diffusers", "diffusers_unet.py"),
    "timm-vit": Case("timm", "timm_vit.py", apart=("timm==1.0.31", "torchvision==0.28.0")),
    "ray-tasks": Case("ray", "ray_tasks.py"),
}


def _make_environment(folder: Path) -> Path:
    """The environment's interpreter, with everything installed."""
    python = folder / "bin" / "python"
    wanted = (HERE / "requirements.txt").read_text()
    stamp = folder / "installed.txt"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    venv.create(folder, with_pip=True)
    (python,) = folder.glob("bin/python")
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "starting_environment.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    constraints = folder / "constraints.txt"
    constraints.write_text(f"torch=={importlib.metadata.version('torch')}\n")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "-c", constraints, "-r",
         HERE / "requirements.txt"],
        check=True,
    )  # fmt: skip
    stamp.write_text(wanted)
    return python


def _install_apart(python: Path, case: Case) -> Path:
    """The folder with the packages that only this case sees; what they depend on is in the environment."""
    folder = python.parents[1] / "apart" / case.library
    stamp = folder / "installed.txt"
    wanted = "\n".join(case.apart)
    if case.apart and not (stamp.is_file() and stamp.read_text() == wanted):
        install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", folder, *case.apart]
        subprocess.run(install, check=True)
        stamp.write_text(wanted)
    return folder


def _environment(apart: Path) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(apart), os.environ.get("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_AUTH_MODE": "disabled",  # else ray writes a token into the home folder
    }


def _run(python: Path, case: Case, apart: Path, log: Path) -> str:
    """ "passed", "failed" or "timed out"; what it printed goes to ``log``."""
    command = [python, *case.launcher, HERE / "cases" / case.script, *case.arguments]
    with tempfile.TemporaryDirectory() as folder, open(log, "w") as output:
        try:
            done = subprocess.run(
                command, cwd=folder, env=_environment(apart), stdout=output, stderr=subprocess.STDOUT,
                timeout=case.minutes * 60,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "timed out"
    return "passed" if done.returncode == 0 else "failed"


def _version(python: Path, library: str, apart: Path) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version({library!r}))"
    done = subprocess.run([python, "-c", code], env=_environment(apart), capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if left out")
    parser.add_argument("--environment", type=Path, default=ROOT / "build" / "libraries")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    python = _make_environment(options.environment)
    failed = False
    print(f"{'case':<18} {'library':<22} {'result':<10} {'s':>5}  log")
    for name in options.cases or CASES:
        case, log = CASES[name], options.environment / f"{name}.log"
        start = time.monotonic()
        apart = _install_apart(python, case)
        result = _run(python, case, apart, log)
        failed |= result != "passed"
        library = f"{case.library} {_version(python, case.library, apart)}"
        print(f"{name:<18} {library:<22} {result:<10} {time.monotonic() - start:>5.0f}  {log}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
