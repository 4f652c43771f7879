"""Standard output whose reader has gone, as behind ``npu-plan ... | head``: the command ends, and says nothing."""

from __future__ import annotations

import os
import select

_STANDARD_OUTPUT = 1
# What a shell reports of a program that SIGPIPE ended.
NOBODY_READS = 141


def reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more. A BrokenPipeError while it is not is about another
    pipe or a socket."""
    poll = select.poll()
    poll.register(_STANDARD_OUTPUT, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def discard() -> None:
    """Drops what is still to be written to standard output, now and at the interpreter's end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, _STANDARD_OUTPUT)
    os.close(null)
