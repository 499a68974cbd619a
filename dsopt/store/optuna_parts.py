"""The Optuna studies of a study's parts: made with it, and before it."""

import warnings

import optuna

from dsopt.store.optuna_notes import describe
from dsopt.store.stored import parts_of
from dsopt.study.command_secrets import shown
from dsopt.study.spec import StudySpec


def remove_empty(storage: optuna.storages.BaseStorage, spec: StudySpec) -> None:
    """Removes Optuna studies of a study whose creator died before it: they may have another metric."""
    names = {f"{spec.name}/{part}" for part in parts_of(spec)}
    for found in optuna.get_all_study_summaries(storage, include_best_trial=False):
        if found.study_name in names and not found.n_trials:
            optuna.delete_study(study_name=found.study_name, storage=storage)


def make(storage: optuna.storages.BaseStorage, spec: StudySpec) -> None:
    """Creates missing Optuna studies; a creator may have died half-way."""
    autotuning = spec.autotuning
    for part in parts_of(spec):
        made = optuna.create_study(
            study_name=f"{spec.name}/{part}",
            storage=storage,
            direction="maximize" if autotuning.maximize else "minimize",
            load_if_exists=True,
        )
        if made.metric_names is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                made.set_metric_names([f"{autotuning.metric} ({autotuning.unit})"])
            made.set_user_attr("command", shown(spec.launch))
            describe(made, spec, part)
