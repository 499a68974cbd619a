"""Reads what counts of a study from the database, for decisions and reports."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsopt.errors import DsoptError
from dsopt.search.history import Earlier, History, Observation, observe
from dsopt.store.attempts import claimed_trials
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.part import AIO, REFERENCE, VERDICT, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is known of a study, and the version of it that this is.

    Attributes:
        history: what counts.
        version: of the study; while it has this version, nothing else counts.
        numbers: by part, the number of its next trial.
    """

    history: History
    version: int
    numbers: Mapping[Part, int]


class HistoryReader:
    """Reads what counts of a study, from its Optuna studies and the claims; a closed stage is read once."""

    def __init__(self, store: Store, study: StoredStudy) -> None:
        self._store = store
        self._study = study
        self._offloads = "nvme" in study.spec.to_json()
        self._closed: dict[int, tuple[list[Observation], str]] = {}
        self._earlier = [_earlier(store, study, name) for name in study.spec.warm_start]
        self._numbers: dict[Part, int] = {}

    def snapshot(self) -> Snapshot:
        """What is known now, with the version that it has at least."""
        _, version = self._store.now(self._study)  # first: what comes in between only makes a decision fail
        return Snapshot(history=self.read(), version=version, numbers=dict(self._numbers))

    def read(self) -> History:
        """What is known now."""
        counted = claimed_trials(self._store, self._study)
        stages: dict[int, list[Observation]] = {stage: [] for stage in self._study.spec.stages}
        verdicts: dict[int, str] = {}
        for stage in stages:
            if stage not in self._closed:
                part = Part.of(stage)
                stages[stage] = self._observe(part, counted)
                verdict = self._store.optuna_study(self._study, part).user_attrs.get(VERDICT)
                if verdict is None:
                    continue  # stages after the open one may hold imported trials
                self._closed[stage] = (stages[stage], verdict)
            stages[stage], verdicts[stage] = self._closed[stage]
        return History(
            reference=self._observe(REFERENCE, counted),
            stages=stages,
            verdicts=verdicts,
            maximize=self._study.spec.autotuning.maximize,
            aio=self._store.optuna_study(self._study, REFERENCE).user_attrs.get(AIO) if self._offloads else None,
            earlier=self._earlier,
        )

    def _observe(self, part: Part, counted: set[tuple[Part, int]]) -> list[Observation]:
        trials = self._store.optuna_study(self._study, part).get_trials(deepcopy=False)
        self._numbers[part] = len(trials)
        return observe(trials, {number for name, number in counted if name == part}, part)


def _earlier(store: Store, study: StoredStudy, name: str) -> Earlier:
    """An earlier study whose results this one starts from.

    Raises:
        DsoptError: there is none of that name.
    """
    try:
        found = store.get(name)
    except DsoptError as error:
        raise DsoptError(f"study '{study.name}': warm_start: {error}") from None
    plain = found.spec.model_copy(update={"warm_start": []})
    return Earlier(spec=plain, history=HistoryReader(store, replace(found, spec=plain)).read())


def load_history(store: Store, study: StoredStudy) -> History:
    """What counts of a study now."""
    return HistoryReader(store, study).read()
