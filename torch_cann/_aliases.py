"""Import names: torch_npu.* and torch.npu.* are the modules of torch_cann, the same objects, not copies.

``sys.modules`` alone cannot say so for modules that are not loaded yet, hence a finder: it answers for names below the
alias only, loads the real module and hands it back under the other name.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

# Prefix of the alias -> prefix of the real name; the first match counts.
PREFIXES = {"torch_npu.": "torch_cann.", "torch.npu.": "torch_cann.npu."}


def real_name(alias: str) -> str | None:
    for prefix, real in PREFIXES.items():
        if alias.startswith(prefix):
            return real + alias.removeprefix(prefix)
    return None


class AliasFinder:
    """A finder and loader in one, for ``sys.meta_path``."""

    @staticmethod
    def find_spec(fullname: str, path=None, target=None) -> ModuleSpec | None:
        real = real_name(fullname)
        if real is None or (real not in sys.modules and importlib.util.find_spec(real) is None):
            return None
        return ModuleSpec(fullname, AliasFinder, is_package=False)

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(real_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        # The import system has just replaced __spec__ by the alias's; a reload must find the real one.
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Call when the modules that ``import torch_cann`` loads are loaded.

    They get their other names here, not when first imported under them: the import system would then also set them as
    attributes of their parent, over a class of the same name (torch.npu.mstx). And _C is no package, so the import
    system would not look for what is inside it.
    """
    for name, module in list(sys.modules.items()):
        for prefix, real in PREFIXES.items():
            if name.startswith(real):
                sys.modules.setdefault(prefix + name.removeprefix(real), module)
    # Before the path finder: a package's __path__ would lead it to load a second copy of the same file.
    sys.meta_path.insert(0, AliasFinder)
