"""The Optuna studies of a study's parts: made with it, and before it."""

import contextlib
import warnings

import optuna

from dsopt.store.optuna_notes import describe
from dsopt.store.stored import parts_of
from dsopt.study.command_secrets import shown
from dsopt.study.spec import StudySpec


def remove_empty(storage: optuna.storages.BaseStorage, spec: StudySpec) -> None:
    """Removes Optuna studies of a study whose creator died before it: they may have another metric."""
    for part in parts_of(spec):
        name = f"{spec.name}/{part}"
        with contextlib.suppress(KeyError):  # there is none
            if not storage.get_n_trials(storage.get_study_id_from_name(name)):
                optuna.delete_study(study_name=name, storage=storage)


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
