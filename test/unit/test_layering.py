"""The arrows between the layers point down only, and no file outgrows its reader.

Read off the sources themselves: ``#include`` lines of ``csrc``, ``import`` statements of the Python packages, source
lists of CMake. Each rule is tried on a made-up violation as well, so a broken scanner cannot pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_CSRC = _ROOT / "csrc"
_CPP_SUFFIXES = {".h", ".hpp", ".cpp", ".cc"}

# What each layer of csrc may include, besides the standard library and fmt.
_ALLOWED = {
    "sim": {"sim"},
    "kernels": {"sim", "kernels"},
    "runtime": {"sim", "runtime", "torch"},
    "profiler": {"sim", "runtime", "profiler", "torch"},
    "aten": {"sim", "kernels", "runtime", "aten", "torch"},
    "distributed": {"sim", "kernels", "runtime", "distributed", "torch"},
    "python": {"sim", "runtime", "profiler", "aten", "distributed", "python", "torch", "pybind11"},
}
_TORCH_PREFIXES = ("torch/", "ATen/", "c10/", "caffe2/", "torchgen/")

_MAX_LINES = 800
_LONGER_FILES = {"csrc/distributed/process_group_hccl.cpp": 1200}
_SIZED_SUFFIXES = _CPP_SUFFIXES | {".py", ".pyi"}

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def _sources(root: Path, suffixes: set[str]) -> list[Path]:
    """The files below ``root`` that belong to the project: neither third-party, nor built, nor a local environment."""
    skipped = {"third_party", "build", "dist", "node_modules", "__pycache__"}
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix in suffixes
        and path.is_file()
        and not any(part in skipped or part.startswith(".") or "venv" in part for part in path.relative_to(root).parts)
    )


def _kind_of_include(name: str) -> str:
    """The layer or library an included name belongs to; ``std`` for standard and system headers and fmt."""
    if name.startswith(_TORCH_PREFIXES):
        return "torch"
    top = name.split("/")[0] if "/" in name else ""
    if top in _ALLOWED or top == "pybind11":
        return top
    if top in ("", "sys", "linux", "fmt"):
        return "std"
    return f"unknown ({name})"


def _include_violations(layer: str, text: str) -> list[str]:
    """The includes in ``text`` that a file of ``layer`` may not have."""
    allowed = _ALLOWED[layer] | {"std"}
    return [name for name in _INCLUDE.findall(text) if _kind_of_include(name) not in allowed]


def _imports(text: str) -> Iterator[str]:
    """The absolute names of modules imported anywhere in a Python source; relative imports start with a dot."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _imports_of(text: str, package: str) -> list[str]:
    return [name for name in _imports(text) if name == package or name.startswith(package + ".")]


def _shim_violations(text: str, shim: str) -> list[str]:
    """What a shim imports besides torch_cann, itself and the standard library's import machinery."""
    allowed = {"torch_cann", shim, "importlib", "sys", "types", "__future__", "typing"}
    if shim == "npu_plan":
        allowed.add("os")  # a process is dry by its environment, which must be set before torch is imported
    return [name for name in _imports(text) if not name.startswith(".") and name.split(".")[0] not in allowed]


def test_csrc_has_no_folder_outside_the_layers() -> None:
    folders = {path.name for path in _CSRC.iterdir() if path.is_dir()}
    assert folders
    assert folders <= set(_ALLOWED)


@pytest.mark.parametrize("layer", sorted(_ALLOWED))
def test_includes_point_down(layer: str) -> None:
    violations = {
        str(path.relative_to(_ROOT)): found
        for path in _sources(_CSRC / layer, _CPP_SUFFIXES)
        if (found := _include_violations(layer, path.read_text(encoding="utf-8")))
    }
    assert violations == {}


@pytest.mark.parametrize(
    ("layer", "include"),
    [
        ("sim", "<ATen/ATen.h>"),
        ("sim", '"runtime/device.h"'),
        ("kernels", "<ATen/ATen.h>"),
        ("kernels", '"runtime/device.h"'),
        ("runtime", '"aten/fallback.h"'),
        ("aten", '"distributed/process_group_hccl.h"'),
        ("distributed", '"aten/fallback.h"'),
        ("aten", '"../sim/hbm.h"'),
    ],
)
def test_a_forbidden_include_is_found(layer: str, include: str) -> None:
    allowed = '#include <vector>\n#include <sys/mman.h>\n#include "sim/hbm.h"\n'
    assert _include_violations(layer, allowed) == []
    assert _include_violations(layer, f"{allowed}  #  include {include}\n") == [include[1:-1]]


def test_threads_are_asked_for_where_openmp_is_on() -> None:
    """at::parallel_for is an inline function that runs on one thread in sources without OpenMP's flag."""
    users = [path for path in _sources(_CSRC, _CPP_SUFFIXES) if "at::parallel_for(" in path.read_text(encoding="utf-8")]
    assert [path.name for path in users] == ["parallel.cpp"]
    assert re.search(r"set_source_files_properties\(aten/parallel.cpp [^)]*-fopenmp", (_CSRC / "CMakeLists.txt").read_text())


def test_shared_memory_engine_knows_no_torch() -> None:
    folder = _CSRC / "distributed"
    sources = [*_sources(folder / "shm", _CPP_SUFFIXES), *(folder / f"{name}.h" for name in ("engine", "reduction"))]
    assert len(sources) > 2
    violations = {
        str(path.relative_to(_ROOT)): found
        for path in sources
        if (
            found := [
                name
                for name in _INCLUDE.findall(path.read_text(encoding="utf-8"))
                if _kind_of_include(name) not in {"std", "sim", "kernels", "distributed"}
            ]
        )
    }
    assert violations == {}


def test_every_include_of_our_own_names_a_file_from_csrc() -> None:
    missing = [
        f"{path.relative_to(_ROOT)}: {name}"
        for path in _sources(_CSRC, _CPP_SUFFIXES)
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8"))
        if _kind_of_include(name) in _ALLOWED and not (_CSRC / name).is_file()
    ]
    assert missing == []


def test_shims_import_only_torch_cann() -> None:
    shims = _ROOT / "torch_cann" / "_shims"
    sources = _sources(shims, {".py"})
    assert sources
    violations = {
        str(path.relative_to(_ROOT)): found
        for path in sources
        if (found := _shim_violations(path.read_text(encoding="utf-8"), path.relative_to(shims).parts[0]))
    }
    assert violations == {}
    assert _shim_violations("import torch_cann.npu\nfrom torch import nn\n", "torch_npu") == ["torch"]


def test_examples_know_nothing_of_this_project() -> None:
    violations = {
        str(path.relative_to(_ROOT)): found
        for path in _sources(_ROOT / "examples", {".py"})
        if (found := _imports_of(path.read_text(encoding="utf-8"), "torch_cann"))
    }
    assert violations == {}
    assert _imports_of("def f():\n    from torch_cann.npu import amp\n", "torch_cann") == ["torch_cann.npu"]


def test_torch_cann_does_not_import_its_shims_or_tests() -> None:
    violations = {
        str(path.relative_to(_ROOT)): found
        for path in _sources(_ROOT / "torch_cann", {".py"})
        if "_shims" not in path.parts
        and (
            found := [
                name
                for package in ("torch_npu", "cann", "test", "examples", "benchmarks")
                for name in _imports_of(path.read_text(encoding="utf-8"), package)
            ]
        )
    }
    assert violations == {}


def test_files_stay_readable() -> None:
    too_long = {
        name: lines
        for path in _sources(_ROOT, _SIZED_SUFFIXES)
        if (lines := len(path.read_text(encoding="utf-8").splitlines()))
        > _LONGER_FILES.get(name := str(path.relative_to(_ROOT)), _MAX_LINES)
    }
    assert too_long == {}


def _glob_calls(text: str) -> list[str]:
    without_comments = re.sub(r"#.*", "", text)
    return re.findall(r"file\s*\(\s*(GLOB\w*)|(aux_source_directory)\s*\(", without_comments, re.IGNORECASE)


def test_cmake_lists_its_sources() -> None:
    files = [path for path in _sources(_ROOT, {".cmake", ".txt"}) if path.suffix != ".txt" or path.stem == "CMakeLists"]
    assert files
    assert [str(path.relative_to(_ROOT)) for path in files if _glob_calls(path.read_text(encoding="utf-8"))] == []
    assert _glob_calls("# file(GLOB x)\nfile( GLOB_RECURSE sources *.cpp)") == [("GLOB_RECURSE", "")]
