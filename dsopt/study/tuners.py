"""The tuners that a study may name as `tuner_type`, and where each lives: one line a tuner (`docs/extending.md`)."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

_GROUP: Final = "dsopt.tuners"  # entry points of other packages, by the name that a study gives
_OPTUNA: Final = "dsopt.search.tuners.optuna_samplers"
_OWN: Final[Mapping[str, str]] = {
    "model_based": "dsopt.search.tuners.model_based:order",
    "random": "dsopt.search.tuners.shuffled:order",
    "gridsearch": "dsopt.search.tuners.gridsearch:order",
    "tpe": f"{_OPTUNA}:tpe",
    "gp": f"{_OPTUNA}:gp",
    "auto": f"{_OPTUNA}:auto",
    "cmaes": f"{_OPTUNA}:cmaes",
}


@cache
def known_tuners() -> Mapping[str, EntryPoint]:
    """Where each tuner lives, by name; imports nothing. Other packages cannot replace dsopt's own tuners."""
    own = {name: EntryPoint(name=name, value=value, group=_GROUP) for name, value in _OWN.items()}
    return {entry.name: entry for entry in entry_points(group=_GROUP)} | own
