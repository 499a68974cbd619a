"""Trials that are not the study's own, although they are in its Optuna studies: they are ended, told, never run."""

from collections.abc import Callable, Sequence
from typing import Final

from dsopt.errors import DsoptError
from dsopt.search.history import BASELINE, History
from dsopt.search.least_memory import profile_candidate
from dsopt.search.sifting import PROFILE
from dsopt.store.ledger import Ledger
from dsopt.store.stored import StoredStudy
from dsopt.study.comparison import compared_run
from dsopt.study.inside import may_be_tried
from dsopt.study.own_sizes import own_size
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.worker.happenings import Happening, TrialLeftOut

BEYOND_LIMITS: Final = "a batch size that the study does not try"
_MOST: Final = 10
_ADDED: Final = "been added by somebody else; dsopt runs only what its own search chooses"


class Foreign:
    """Leaves out the trials of a study that it cannot have made."""

    def __init__(self, ledger: Ledger, study: StoredStudy, tell: Callable[[Happening], None]) -> None:
        self._ledger = ledger
        self._study = study
        self._tell = tell
        self._count = 0

    def leave_out(self, history: History) -> bool:
        """Gives back the claims of trials that were altered, so that their candidates can run. False: there are none.

        Raises:
            DsoptError: this happens again and again, so the study is stopped.
            Fenced: the study or this worker is gone.
        """
        for left in history.left_out:
            self.leave(left.part, left.trial, left.why)
        self._count += len(history.left_out)
        if self._count > _MOST:
            note = "somebody else changes its trials in the database again and again; see docs/security.md"
            self._ledger.change(self._study, state="stopped", note=note)
            raise DsoptError(f"study '{self._study.name}': {note}.")
        return bool(history.left_out)

    def leave(self, part: Part, trial: int, why: str) -> None:
        """Gives back the claim of a trial, which has what `why` says.

        Raises:
            Fenced: the study or this worker is gone.
        """
        self._ledger.disown(self._study, part, trial, why)
        self._tell(TrialLeftOut(study=self._study, part=part, trial=trial, why=f"has {why}"))

    def end_added(self, added: Sequence[tuple[Part, int]]) -> None:
        """Ends the trials that others have enqueued or begun.

        Raises:
            Fenced: the study or this worker is gone.
        """
        for part, number in self._ledger.end_added(self._study, added, f"it has {_ADDED}") if added else ():
            self._tell(TrialLeftOut(study=self._study, part=part, trial=number, why=f"has {_ADDED}"))


def is_own(part: Part, trial: int, history: History) -> bool:
    """Whether a trial counts in a study, so that it can be its own."""
    stage = part.stage
    counted = history.reference if stage is None else history.stages.get(stage, ())
    return any(observation.trial == trial for observation in counted)


def is_beyond_limits(study: StoredStudy, candidate: Candidate | None, history: History) -> bool:
    """Whether the user's lists and limits of batch sizes keep a trial that others left from running again.

    The study's own search would choose it again if it had.
    """
    if candidate is None:
        return False
    baseline = history.find(BASELINE)
    shown = baseline.facts if baseline is not None else None
    own = (shown.micro_batch, shown.gas) if shown is not None else (0, 0)
    sizes = (own_size(study.spec, MICRO_BATCH), own_size(study.spec, ACCUMULATION))
    return not any(may_be_tried(study.spec, candidate, each) for each in (own, sizes))


def reference_candidate(study: StoredStudy, name: str, history: History) -> Candidate | None:
    """The point of the space that a reference run is of; None for the user's own configuration.

    Raises:
        DsoptError: the study has no such run.
    """
    if name == BASELINE or compared_run(study.spec, name) is not None:
        return None
    if name == PROFILE:
        return profile_candidate(study.spec)
    finalist = next((o for o in history.observations if o.name == name and o.has_figure), None)
    if finalist is None:
        raise DsoptError(
            f"study '{study.name}': a trial of {study.name}/{REFERENCE} was changed by somebody else while it was "
            "about to run. Start the worker again: it leaves that trial out."
        )
    return finalist.candidate
