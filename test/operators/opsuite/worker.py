"""The process that runs cases: ``python -m opsuite.worker DEVICE``.

One request per line on standard input, ``{"case": name, "checks": [...]}``; for each check one line
``{"begin": check}`` before it runs and one outcome after it, then ``{"done": name}``. Kernels that print do not disturb
the protocol, since file descriptor 1 is moved away from standard output first.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any, TextIO


def _protocol_stream() -> TextIO:
    """Standard output as it was at start; from here on everything printed goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def _send(stream: TextIO, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _serve(device: str, requests: TextIO, answers: TextIO) -> None:
    import torch

    torch.set_num_threads(1)
    if device != "cpu":
        import torch_cann  # noqa: F401 - registers the device where the entry point is not installed
    from .cases import Case
    from .checks import FAIL, Outcome, run_check

    _send(answers, {"ready": torch.__version__})
    for line in requests:
        request = json.loads(line)
        case = Case.parse(request["case"])
        for check in request["checks"]:
            _send(answers, {"begin": check})
            try:
                outcome = run_check(check, case, device)
            except Exception as error:  # noqa: BLE001 - a broken sample generator must not end the sweep
                outcome = Outcome(check, FAIL, "harness", f"{type(error).__name__}: {error}"[:400])
            _send(answers, outcome.to_json())
        _send(answers, {"done": request["case"]})


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    _serve(sys.argv[1], sys.stdin, _protocol_stream())
