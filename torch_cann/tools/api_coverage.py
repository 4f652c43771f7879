"""How much of torch_npu's public surface there is: ``python -m torch_cann.tools.api_coverage``.

The names and signatures to match are in torch_npu_api.txt. A name is

    works      there, callable as torch_npu's is, and used in the code of a test
    present    the same, but no test uses it
    refused    there, and raises NotImplementedError that says why when used (torch_cann/_refused.py)
    differs    there, but a call that torch_npu accepts would fail for want of a parameter
    missing    not there
"""

import argparse
import ast
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SURFACE = Path(__file__).with_name("torch_npu_api.txt")
STATES = ("works", "present", "refused", "differs", "missing")


@dataclass(frozen=True)
class Name:
    module: str
    name: str  # may be dotted: an attribute of a class or of an object
    signature: str  # "(a, b=1)", or "" where torch_npu has none

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


def read_surface(path: Path = SURFACE) -> list[Name]:
    names, module = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            module = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, signature = line.partition(" ")
            names.append(Name(module, name, signature))
    return names


def _resolve(name: Name) -> object:
    """The object that the name means here; raises ImportError or AttributeError when there is none."""
    value = importlib.import_module(name.module)
    for part in name.name.split("."):
        value = getattr(value, part)
    return value


def _wanted_parameters(signature: str) -> Iterator[tuple[str, bool]]:
    """(name, whether it can be given by position) for each parameter of torch_npu's function, without the receiver."""
    function = ast.parse(f"def f{signature}: ...").body[0]
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if positional[:1] in (["self"], ["cls"]):
        del positional[0]
    yield from ((name, True) for name in positional)
    yield from ((argument.arg, False) for argument in arguments.kwonlyargs)


def _takes_the_same_calls(value: object, signature: str) -> bool:
    """Whether ``value`` has every parameter of ``signature``, and the positional ones in the same order."""
    if not signature or not callable(value):
        return True
    try:
        ours = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):  # built in: says nothing about its parameters
        return True
    kinds = {parameter.kind for parameter in ours}
    if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
        return True
    places = {parameter.name: place for place, parameter in enumerate(ours)}
    for place, (name, positional) in enumerate(_wanted_parameters(signature)):
        if name not in places and inspect.Parameter.VAR_KEYWORD not in kinds:
            return False
        if positional and name in places and places[name] != place:
            return False
    return True


def _names_used(tree: ast.AST) -> Iterator[str]:
    """Names and attributes in code, and strings that are identifiers (for getattr and parameters of tests).

    Code in strings that a test runs in another interpreter counts too; comments and docstrings do not.
    """
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"^\w+$", node.value)
            if "import torch" in node.value:
                try:
                    yield from _names_used(ast.parse(node.value))
                except SyntaxError:  # a pattern or a message
                    continue


def names_in_tests(folder: Path) -> set[str]:
    """Every name that the code of the tests below ``folder`` uses."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))
    return {name for tree in trees for name in _names_used(tree)}


def state(name: Name, tested: set[str]) -> str:
    try:
        value = _resolve(name)
    except (ImportError, AttributeError):
        return "missing"
    if getattr(value, "__refused__", None):
        return "refused"
    if not _takes_the_same_calls(value, name.signature):
        return "differs"
    return "works" if name.name.split(".")[-1] in tested else "present"


def measure(tests: Path | None) -> dict[str, dict[str, str]]:
    """{module: {name: state}}; without ``tests`` nothing is known to work."""
    tested = names_in_tests(tests) if tests else set()
    result: dict[str, dict[str, str]] = {}
    for name in read_surface():
        result.setdefault(name.module, {})[name.name] = state(name, tested)
    return result


def report(result: dict[str, dict[str, str]], names: bool) -> str:
    """A line for each module; with ``names``, below it the names that are not simply there."""
    width = max(map(len, result))
    lines = [f"{'':<{width}} " + "".join(f"{title:>9}" for title in STATES)]
    total: Counter[str] = Counter()
    for module, states in result.items():
        count = Counter(states.values())
        total += count
        lines.append(f"{module:<{width}} " + "".join(f"{count[title] or '':>9}" for title in STATES))
        if names:
            lines += [f"    {name}: {kind}" for name, kind in states.items() if kind not in ("works", "present")]
    lines.append(f"{'all':<{width}} " + "".join(f"{total[title]:>9}" for title in STATES))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torch_cann.tools.api_coverage", description=__doc__.split("\n")[0])
    beside = Path(__file__).resolve().parents[2] / "test"
    parser.add_argument("--tests", type=Path, default=beside if beside.is_dir() else None, help="folder of the tests")
    parser.add_argument("--names", action="store_true", help="list the names that are refused, differ or are missing")
    parser.add_argument("--json", action="store_true", help="{module: {name: state}} instead of a table")
    options = parser.parse_args()
    result = measure(options.tests)
    print(json.dumps(result, indent=1) if options.json else report(result, options.names))


if __name__ == "__main__":
    main()
