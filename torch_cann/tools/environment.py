"""Prints the page of environment variables: ``python -m torch_cann.tools.environment > docs/environment.md``."""

from collections.abc import Iterator

from torch_cann._variables import READ, WITHOUT_EFFECT


def _lines() -> Iterator[str]:
    yield "# Environment variables"
    yield ""
    yield "Made by `python -m torch_cann.tools.environment > docs/environment.md`."
    yield ""
    yield "Read once, when first needed; a malformed value is an error that says what is allowed. Variables that start with"
    yield "`TORCH_CANN_` and are not in this table are named in a warning when the package is imported."
    yield ""
    yield "| Variable | Default | Meaning |"
    yield "|---|---|---|"
    for subject, variables in READ.items():
        yield f"| **{subject}** | | |"
        for variable in variables:
            yield f"| `{variable.name}` | {variable.default} | {variable.meaning} |"
    yield ""
    yield "## Variables of Ascend's software that change nothing"
    yield ""
    yield "| Why | Variables |"
    yield "|---|---|"
    for reason, names in WITHOUT_EFFECT.items():
        yield f"| {reason} | {', '.join(f'`{name}`' for name in sorted(names.split()))} |"


def page() -> str:
    return "\n".join(_lines()) + "\n"


if __name__ == "__main__":
    print(page(), end="")
