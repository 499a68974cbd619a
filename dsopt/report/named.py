"""The runs that a result names: data keeps their canonical names, and people read `ZeRO 2 · 24 × 4 · bucket 50M`."""

from collections.abc import Collection, Iterable
from typing import Final

from dsopt.report.readable import readable_name
from dsopt.search.baseline_twin import baseline_test
from dsopt.search.history import History, Observation
from dsopt.search.unconfirmed import failed_again, left_out
from dsopt.study.spec import StudySpec

# of runs that trained otherwise than they were told to, or that show no training
_NO_FIGURE: Final = ("invalid_config", "few_samples", "overflow", "nonfinite_loss")


def taken_over(history: History) -> dict[str, list[str]]:
    """Names of the runs that were taken over, by the study they are from."""
    found: dict[str, list[str]] = {}
    for observation in history.everything:
        if observation.taken_over is not None:
            found.setdefault(observation.taken_over, []).append(observation.name)
    return found


def only_imported(spec: StudySpec, history: History) -> list[str]:
    """Names of the candidates that another tuner has measured, and of which no run here has ended."""
    is_own, ended = baseline_test(spec, history), {o.name for o in history.reference if o.state != "running"}
    return [o.name for o in history.observations if o.imported and o.name not in ended and not is_own(o.candidate)]


def crashed(history: History) -> list[tuple[str, str]]:
    """What failed in its first run here, or had no figure that dsopt could take, and why."""
    first = [o for o in left_out(history) if o.name not in failed_again(history)]
    tried = [*history.observations, *first]
    return [(o.name, o.message) for o in tried if o.state == "failed" or o.reason in _NO_FIGURE]


def labels_of(history: History, names: Collection[str]) -> dict[str, str]:
    """What people read for each of these names."""
    return labels(o for o in history.everything if o.name in names)


def labels(observations: Iterable[Observation]) -> dict[str, str]:
    """What people read for each configuration, by its name; reference runs come first, and know less of it."""
    return {o.name: readable_name(o.name, o.candidate) for o in observations}


def names_in(run: str) -> str:
    """The canonical name in the name of a run, `NAME (round 2)` (`run_label`)."""
    return run.partition(" (round ")[0]
