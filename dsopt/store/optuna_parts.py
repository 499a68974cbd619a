"""The Optuna studies of a study's parts: made with it, and before it."""

import contextlib
import warnings
from typing import Final

import optuna

from dsopt.errors import DsoptError
from dsopt.store.optuna_notes import describe
from dsopt.store.stored import parts_of
from dsopt.study.command_secrets import shown
from dsopt.study.spec import StudySpec

_COMMAND: Final = "command"  # the first attribute that such a study gets


def remove_empty(storage: optuna.storages.BaseStorage, spec: StudySpec) -> None:
    """Removes Optuna studies of a study whose creator died before it: they may have another metric.

    Raises:
        DsoptError: somebody else has made a study of such a name, with Optuna itself.
    """
    empty = []
    for name in (f"{spec.name}/{part}" for part in parts_of(spec)):
        with contextlib.suppress(KeyError):  # there is none
            number = storage.get_study_id_from_name(name)
            attributes, has_trials = storage.get_study_user_attrs(number), storage.get_n_trials(number) > 0
            if _COMMAND not in attributes and (attributes or has_trials):
                raise DsoptError(
                    f"study '{spec.name}': the database has an Optuna study '{name}' that is not dsopt's. It stays as "
                    "it is: create the study under another --name."
                )
            if not has_trials:
                empty.append(name)
    for name in empty:
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
            made.set_user_attr(_COMMAND, shown(spec.launch))
            describe(made, spec, part)
