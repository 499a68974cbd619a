"""Reads what counts of a study from dsopt's tables, for decisions and reports; what was read once is not read again."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsopt.errors import DsoptError
from dsopt.protocol.text import plain_text
from dsopt.search.history import Earlier, History, LeftOut, Observation
from dsopt.search.sifting import not_a_reference, references_of, sift
from dsopt.store.reading import Kept, kept_trials, known_since
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.inside import aio_inside
from dsopt.study.part import AIO, REFERENCE, VERDICT, Part

_NOTHING = -1  # a version before all others


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is known of a study, and what it stands on.

    Attributes:
        history: what counts.
        version: of the study; while it has this version, nothing else counts.
        decisions: while the study has these, nobody has decided anything, though runs may have ended.
        numbers: by part, the number of its next trial.
        has_free: whether a trial that is not over has no worker.
    """

    history: History
    version: int
    decisions: int
    numbers: Mapping[Part, int]
    has_free: bool


class HistoryReader:
    """Reads what counts of a study; after the first time, only what has changed."""

    def __init__(self, store: Store, study: StoredStudy) -> None:
        self._store = store
        self._study = study
        self._offloads = "nvme" in study.spec.to_json()
        self._references = references_of(study.spec)
        earlier = (_earlier(store, study, name) for name in study.spec.warm_start)
        self._earlier = [found for found in earlier if found is not None]
        self._learnt: dict[Hashable, object] = {}
        self._version = self._incarnation = _NOTHING
        self._seen: dict[Part, dict[int, Observation]]  # in the order of trials
        self._left: dict[tuple[Part, int], LeftOut]
        self._free: set[tuple[Part, int]]
        self._forget()

    def snapshot(self) -> Snapshot:
        """What is known now.

        Raises:
            DsoptError: the study was deleted, or somebody else wrote something that cannot be read.
        """
        known = known_since(self._store, self._study, self._version)
        self._note(known.changed)
        # claims were given back, or the database is an earlier one
        is_restored = self._incarnation not in (_NOTHING, known.incarnation) or known.version < self._version
        if is_restored or sum(map(len, self._seen.values())) + len(self._left) != known.count:
            self._forget()
            known = known_since(self._store, self._study, _NOTHING)
            self._note(known.changed)
        self._version, self._incarnation = known.version, known.incarnation
        return Snapshot(
            history=self._history(known.marks),
            version=known.version,
            decisions=known.decisions,
            numbers={part: self._next_number(part) for part in self._seen},
            has_free=bool(self._free),
        )

    def read(self) -> History:
        """What counts now."""
        return self.snapshot().history

    def _forget(self) -> None:
        self._version = _NOTHING
        self._seen = {part: {} for part in self._study.parts}
        self._left = {}
        self._free = set()

    def _next_number(self, part: Part) -> int:
        left = (number for of, number in self._left if of == part)
        return max(next(reversed(self._seen[part]), -1), max(left, default=-1)) + 1

    def _note(self, changed: Sequence[Kept]) -> None:
        for kept in sorted(changed, key=lambda one: one.trial.number):
            number = kept.trial.number
            seen = sift(self._study.spec, kept.part, kept.trial, kept.name, kept.round)
            of_part = self._seen.setdefault(kept.part, {})
            if isinstance(seen, LeftOut):
                self._left[kept.part, number] = seen
                of_part.pop(number, None)
            else:
                was_left_out = self._left.pop((kept.part, number), None) is not None
                of_part[number] = seen
                if was_left_out:
                    self._seen[kept.part] = dict(sorted(of_part.items()))
            (self._free.add if kept.is_free else self._free.discard)((kept.part, number))

    def _history(self, marks: Mapping[str, Mapping[str, Any]]) -> History:
        left = [*self._left.values()]
        stages: dict[int, list[Observation]] = {}
        verdicts: dict[int, str] = {}
        for stage in self._study.spec.stages:
            part = Part.of(stage)
            stages[stage] = [*self._seen[part].values()]
            verdict = marks.get(part, {}).get(VERDICT)
            if isinstance(verdict, str):
                verdicts[stage] = plain_text(verdict)
        reference = []
        self._name_candidates(stages)
        for o in self._seen[REFERENCE].values():
            why = not_a_reference(o, self._references, stages.values())
            if why is None:
                reference.append(o)
            else:
                left.append(LeftOut(part=REFERENCE, trial=o.trial, why=why))
        return History(
            reference=reference,
            stages=stages,
            verdicts=verdicts,
            maximize=self._study.spec.autotuning.maximize,
            aio=aio_inside(marks.get(REFERENCE, {}).get(AIO)) if self._offloads else None,
            earlier=self._earlier,
            left_out=left,
            learnt=self._learnt,
        )

    def _name_candidates(self, stages: Mapping[int, Sequence[Observation]]) -> None:
        """Gives further runs of a candidate what it is: their trials have its name alone."""
        of_it = self._seen[REFERENCE]
        nameless = [n for n, o in of_it.items() if o.candidate is None and o.name not in self._references]
        known = {o.name: o.candidate for seen in stages.values() for o in seen} if nameless else {}
        for number in nameless:
            of_it[number] = replace(of_it[number], candidate=known.get(of_it[number].name))


def _earlier(store: Store, study: StoredStudy, name: str) -> Earlier | None:
    """An earlier study whose results this one starts from; None: it is gone, and this one goes on without it.

    Raises:
        DsoptError: it cannot be read, or is not to be trusted.
    """
    if all(header.name != name for header in store.headers()):
        return None
    try:
        found = store.read(name) if study.distrust else store.get(name)  # what is never run may show others' figures
    except DsoptError as error:
        if store.state(study) == "finished":
            return None
        raise DsoptError(f"study '{study.name}': warm_start: {error}") from None
    plain = found.spec.model_copy(update={"warm_start": []})
    return Earlier(spec=plain, history=HistoryReader(store, replace(found, spec=plain)).read())


def load_history(store: Store, study: StoredStudy) -> History:
    """What counts of a study now."""
    return HistoryReader(store, study).read()


def observations_of(store: Store, study: StoredStudy, names: Collection[str]) -> list[Observation]:
    """What counts of the configurations that are named; it reads nothing else of the study."""
    sifted = (sift(study.spec, k.part, k.trial, k.name, k.round) for k in kept_trials(store, study, names))
    return [seen for seen in sifted if isinstance(seen, Observation)]
