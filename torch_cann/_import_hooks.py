"""Calls that wait for a module of PyTorch to be loaded: registries that would take long to load are told of npu then.

The import system asks ``sys.meta_path``; a finder there lets the usual finders find the module and adds one call after
its execution. Nothing of the module is replaced.
"""

import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}


def when_imported(name: str, call: Callable[[], None]) -> None:
    """Runs ``call()`` right after module ``name`` is loaded; at once if it is.

    What ``call`` raises is raised by the import, and the module counts as not loaded.
    """
    if name in sys.modules:
        call()
        return
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    _waiting.setdefault(name, []).append(call)


class _Finder:
    """Finds the modules that something waits for, through the finders after it."""

    @staticmethod
    def find_spec(fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            if finder is _Finder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    """Does what the module's own loader does, gives the module back to it, and makes the calls."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        calls = _waiting.pop(module.__name__, [])
        try:
            for call in calls:
                call()
        except BaseException:
            _waiting[module.__name__] = calls
            raise
