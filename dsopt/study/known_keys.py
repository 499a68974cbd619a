"""The keys that a study may have. Pydantic would refuse others, too, but not suggest the key that the user meant."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from dsopt.study.autotuning import Autotuning
from dsopt.study.dimensions import Search
from dsopt.study.documents import nearest
from dsopt.study.mistakes import Mistakes
from dsopt.study.simulation import SimulatedGpu, SimulatedModel, Simulation
from dsopt.study.spec import Confirmation, MeasurementBudget, StudySpec

# each section by its path, the outer ones first
SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "autotuning": Autotuning, "search": Search, "measurement": MeasurementBudget, "confirmation": Confirmation,
    "simulation": Simulation, "simulation.gpu": SimulatedGpu, "simulation.model": SimulatedModel,
}  # fmt: skip
# what DeepSpeed reads in `autotuning` for its own plumbing, and dsopt does not need
IGNORED_AUTOTUNING: Final = ("metric_path", "model_info_path")


def known_part(content: Mapping[str, Any], where: str, mistakes: Mistakes) -> dict[str, Any]:
    """A study without its unknown keys, each of which is a mistake."""
    known = _known(content, StudySpec, "", where, mistakes)
    for path in SECTIONS:
        *above, name = path.split(".")
        holder = known.get(above[0]) if above else known
        if isinstance(holder, dict) and isinstance(holder.get(name), Mapping):
            holder[name] = known_section(holder[name], path, where, mistakes)
    return known


def known_section(section: Mapping[str, Any], path: str, where: str, mistakes: Mistakes) -> dict[str, Any]:
    """A section of a study without its unknown keys."""
    return _known(section, SECTIONS[path], f"{path}.", where, mistakes)


def _known(
    keys: Mapping[str, Any], model: type[BaseModel], prefix: str, where: str, mistakes: Mistakes
) -> dict[str, Any]:
    known = set(model.model_fields)
    if model is Autotuning:
        known |= {"start_step", "end_step", *IGNORED_AUTOTUNING}
    for key in keys:
        if key in known:
            continue
        meant = nearest(str(key), known, cutoff=0.6)
        hint = f"Did you mean '{prefix}{meant}'?" if meant else f"Expected one of: {', '.join(sorted(known))}."
        mistakes.add(f"{where}: unknown key '{prefix}{key}'. {hint}", *([f"{prefix}{meant}"] if meant else []))
    return {key: value for key, value in keys.items() if key in known}
