"""Reads what counts of a study from the database, for decisions and reports."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsopt.errors import DsoptError
from dsopt.search.history import Earlier, History, LeftOut, Observation, observe
from dsopt.search.sifting import Claimed, Sieve
from dsopt.store.reading import claims_by_part, trials_of
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.inside import aio_inside
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
        self._sieve = Sieve(study.spec)
        self._earlier = [_earlier(store, study, name) for name in study.spec.warm_start]
        self._numbers: dict[Part, int] = {}

    def snapshot(self) -> Snapshot:
        """What is known now, with the version that it has at least."""
        _, version = self._store.now(self._study)  # first: what comes in between only makes a decision fail
        return Snapshot(history=self.read(), version=version, numbers=dict(self._numbers))

    def read(self) -> History:
        """What is known now."""
        claims = claims_by_part(self._store, self._study)
        left: list[LeftOut] = []
        stages: dict[int, list[Observation]] = {stage: [] for stage in self._study.spec.stages}
        verdicts: dict[int, str] = {}
        for stage in stages:
            if stage not in self._closed:
                part = Part.of(stage)
                stages[stage] = self._observe(part, claims[part], left)
                verdict = self._store.optuna_study(self._study, part).user_attrs.get(VERDICT)
                if not isinstance(verdict, str):
                    continue  # stages after the open one may hold imported trials
                self._closed[stage] = (stages[stage], verdict)
            stages[stage], verdicts[stage] = self._closed[stage]
        candidates = {o.name for tried in stages.values() for o in tried if o.state == "measured"}
        return History(
            reference=self._observe(REFERENCE, claims[REFERENCE], left, candidates),
            stages=stages,
            verdicts=verdicts,
            maximize=self._study.spec.autotuning.maximize,
            aio=self._aio() if self._offloads else None,
            earlier=self._earlier,
            left_out=left,
        )

    def _observe(
        self, part: Part, claims: Mapping[int, Claimed], left: list[LeftOut], candidates: Collection[str] = ()
    ) -> list[Observation]:
        """What counts of a part; adds to `left` what is claimed and does not."""
        trials = trials_of(self._store.optuna_study(self._study, part))
        self._numbers[part] = len(trials)
        own, others = self._sieve.own(part, trials, claims, candidates)
        left += others
        return observe(own, {trial.number for trial in own}, part)

    def _aio(self) -> Mapping[str, Any] | None:
        return aio_inside(self._store.optuna_study(self._study, REFERENCE).user_attrs.get(AIO))


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
