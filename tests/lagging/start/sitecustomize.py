"""For PYTHONPATH: sets the device that lags as soon as a program imports DeepSpeed's accelerators."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_AFTER = "deepspeed.accelerator"


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _AFTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                from lagging_accelerator import LaggingAccelerator

                module.set_accelerator(LaggingAccelerator())

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
