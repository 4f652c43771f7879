"""Builds the wheel torch-cann: CMake makes the three shared objects, setuptools packs them with the Python package.

`pip install --no-build-isolation .` is the supported way. The CMake build tree is build/cmake, so that a second
build compiles only what changed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
VERSION = (ROOT / "torch_cann" / "version.txt").read_text().strip()
TORCH_NPU_VERSION = "2.13.0"  # the torch_npu release whose public names are provided
SHIMS = ("torch_npu", "cann", "acl", "npu_plan")


class CMakeBuild(build_ext):
    """Runs CMake, which places _C.so and lib/ in the source package, and copies them into the package being built.

    In the sources too, because Python started in the root of a checkout imports the package from there.
    """

    def build_extension(self, ext: Extension) -> None:
        sources, package = ROOT / "torch_cann", Path(self.get_ext_fullpath(ext.name)).resolve().parent
        tree = ROOT / "build" / "cmake"
        tree.mkdir(parents=True, exist_ok=True)
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 2))
        subprocess.check_call(
            ["cmake", "-S", str(ROOT), "-B", str(tree), "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
        )
        subprocess.check_call(["cmake", "--build", str(tree), "--parallel", jobs])
        if package != sources:
            shutil.copytree(sources / "lib", package / "lib", dirs_exist_ok=True)
            shutil.copy2(sources / "_C.so", package)
        self.write_torch_npu_metadata(package.parent)

    def get_ext_filename(self, fullname: str) -> str:
        # No ABI tag: `_C.so` is named the same in a wheel and in the source tree.
        return os.path.join(*fullname.split(".")) + ".so"

    @staticmethod
    def write_torch_npu_metadata(site: Path) -> None:
        """Makes importlib.metadata.version("torch_npu") answer: libraries ask it to detect the device."""
        info = site / f"torch_npu-{TORCH_NPU_VERSION}.egg-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "PKG-INFO").write_text(
            f"Metadata-Version: 2.1\nName: torch_npu\nVersion: {TORCH_NPU_VERSION}\n"
            "Summary: provided by torch-cann, the simulated NPU\n"
        )


def shim_packages() -> tuple[list[str], dict[str, str]]:
    """The import names torch_npu, cann and acl, and the command npu_plan, which live in torch_cann/_shims."""
    packages, directories = [], {}
    for name in SHIMS:
        base = Path("torch_cann/_shims") / name
        packages += [name] + [f"{name}.{p}" for p in find_packages(str(base))]
        directories[name] = str(base)
    return packages, directories


shim_names, shim_dirs = shim_packages()
setup(
    version=VERSION,
    packages=find_packages(include=["torch_cann", "torch_cann.*"], exclude=["torch_cann._shims*"]) + shim_names,
    package_dir=shim_dirs,
    package_data={"torch_cann": ["version.txt", "*.pyi", "py.typed", "_home/**/*", "tools/*.txt"]},
    ext_modules=[Extension("torch_cann._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    zip_safe=False,
)
