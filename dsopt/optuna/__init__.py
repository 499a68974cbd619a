"""dsopt's search as ordinary Optuna classes: a sampler and two pruners for few, expensive trials of any kind.

    study = optuna.create_study(sampler=XGBoostSampler(), pruner=MemoryPruner(["batch_size"]))

They do not depend on the rest of dsopt, and learn only from `study.trials`.
"""

from dsopt.optuna.memory_pruner import FitModel, MemoryPruner
from dsopt.optuna.patience_pruner import PatiencePruner
from dsopt.optuna.sampler import XGBoostSampler

__all__ = ["FitModel", "MemoryPruner", "PatiencePruner", "XGBoostSampler"]
