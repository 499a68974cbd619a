"""Calls back when a module has been imported, without importing it."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def after_import(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Calls `callback` with the module `name` right after its first import; at once when it is there already.

    Callbacks of one module are called in the order in which they came.
    """
    if name in sys.modules:
        callback(sys.modules[name])
        return
    waiting = next((f for f in sys.meta_path if isinstance(f, _Finder) and f.name == name), None)
    if waiting is None:
        waiting = _Finder(name)
        sys.meta_path.insert(0, waiting)
    waiting.callbacks.append(callback)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the other finders would, with a loader that calls back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.callbacks: list[Callable[[ModuleType], None]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)  # many ask for a spec only to see whether there is a module
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)  # get_source and get_filename, for tracebacks and inspect

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._loader.exec_module(module)
        for callback in self._finder.callbacks:
            callback(module)
