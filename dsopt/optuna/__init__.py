"""dsopt's search as ordinary Optuna classes: a sampler and two pruners for few, expensive trials of any kind.

    study = optuna.create_study(sampler=XGBoostSampler(), pruner=MemoryPruner(["batch_size"]))

They do not depend on the rest of dsopt, and learn only from `study.trials`. Each is imported when you first use it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsopt.optuna.memory_pruner import FitModel, MemoryPruner
    from dsopt.optuna.patience_pruner import PatiencePruner
    from dsopt.optuna.sampler import XGBoostSampler

__all__ = ["FitModel", "MemoryPruner", "PatiencePruner", "XGBoostSampler"]

_PLACES = {
    "FitModel": "memory_pruner",
    "MemoryPruner": "memory_pruner",
    "PatiencePruner": "patience_pruner",
    "XGBoostSampler": "sampler",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - type checkers see the imports above
    """Imports a name when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'dsopt.optuna' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"dsopt.optuna.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """All names, including those not imported yet."""
    return sorted({*globals(), *__all__})
