"""Going on with a study whose script has sizes of its own: in another one that maps the script's flags."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.api.study import Study
from dsopt.errors import DsoptError
from dsopt.experiment.contradiction import mappings_in

_SUFFIX: Final = "-mapped"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedStudy:
    """What to go on with.

    Attributes:
        name: of the study to create; the earlier one stays as it is.
        earlier: the study whose runs it takes over.
        mappings: the script's flags to map, by their keys in DeepSpeed's configuration.
    """

    name: str
    earlier: str
    mappings: Mapping[str, str]

    @property
    def options(self) -> str:
        """The options of `dsopt tune` that create it."""
        maps = " ".join(f"--map {key}={flag}" for key, flag in self.mappings.items())
        return f"{maps} --name {self.name} --take-over {self.earlier}"

    def settings(self, earlier: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a command with these mappings too."""
        tuning = dict(earlier.get("autotuning") or {})
        tuning["arg_mappings"] = {**tuning.get("arg_mappings", {}), **self.mappings}
        return {**earlier, "name": self.name, "autotuning": tuning}


def mapped_study(study: Study) -> MappedStudy | None:
    """What to go on with if dsopt refused runs of a study because of a flag that it knows now; else None."""
    mappings = mappings_in(study.summary.fixed_sizes)
    if not mappings:
        return None
    base, found, number = study.name.rpartition(_SUFFIX)
    if not found or (number and not number.removeprefix("-").isdigit()):
        name = f"{study.name}{_SUFFIX}"
    else:
        name = f"{base}{_SUFFIX}-{int(number.removeprefix('-') or 1) + 1}"
    return MappedStudy(name=name, earlier=study.name, mappings=mappings)


def mapping_of(given: str) -> tuple[str, str]:
    """Key and flag of `KEY=FLAG`.

    Raises:
        DsoptError: it is not of that form.
    """
    key, equals, flag = (part.strip() for part in given.partition("="))
    if not key or not equals or not flag.startswith("-") or key.startswith("-"):
        raise DsoptError(
            f"--map: {given!r}. Expected a key of DeepSpeed's configuration, '=' and the script's flag, such as "
            "train_micro_batch_size_per_gpu=--batch-size."
        )
    return key, flag
