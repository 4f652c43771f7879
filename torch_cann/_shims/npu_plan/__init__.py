"""The command npu-plan. A process is dry from its start or not at all, so the environment is set before torch is imported."""

import os
import sys

# Options that the device reads when it is initialised, and the variables it reads them from.
_VARIABLES = {
    "--soc": "TORCH_CANN_SOC",
    "--soc-file": "TORCH_CANN_SOC_FILE",
    "--nproc-per-node": "TORCH_CANN_DEVICE_COUNT",
    "--nproc_per_node": "TORCH_CANN_DEVICE_COUNT",
    "--hbm-mb": "TORCH_CANN_HBM_MB",
}


def _set_environment(arguments: list[str]) -> None:
    os.environ["TORCH_CANN_DRY_RUN"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments[:1] and arguments[0] in ("estimate", "search"):
        # The reference program runs whether it fits or not, so that what is missing can be said.
        os.environ["TORCH_CANN_HBM_MB"] = str(1 << 20)
        os.environ["TORCH_CANN_DEVICE_COUNT"] = "8"
    for position, argument in enumerate(arguments):
        if argument.endswith(".py") or argument == "-m":
            return  # what follows belongs to the script
        name, equals, value = argument.partition("=")
        if name in _VARIABLES and not (name == "--hbm-mb" and arguments[0] in ("estimate", "search")):
            following = arguments[position + 1 : position + 2]
            os.environ[_VARIABLES[name]] = value if equals else "".join(following)


def main() -> int:
    _set_environment(sys.argv[1:])
    try:
        from torch_cann.plan import cli
    except ImportError as error:  # a value of the environment that the device refuses, such as 1000 cards in a server
        print(f"npu-plan: {error}", file=sys.stderr)
        return 1

    return cli.main(sys.argv[1:])
