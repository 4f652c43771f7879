"""What npu-plan reports as one sentence and a non-zero exit, in place of a traceback."""


class PlanError(Exception):
    """The plan cannot be made: bad input, a layout that cannot be, or a script that failed. The text says which."""


class UnknownValueError(RuntimeError):
    """A script decides by a value that a dry run does not have. Names the line, and how to answer it."""
