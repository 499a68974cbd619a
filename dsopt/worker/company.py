"""Which runs of one worker bear others beside them.

Runs of other devices still share the machine's cores, memory and disks. What is compared in the end runs alone, and so
does what computes on the host. And a script may have a port, a file or a lock of a fixed name.
"""

from dsopt.experiment.outcome import Failed, Measured, Outcome, Slow
from dsopt.search.sharding import offload_of
from dsopt.store.attempts import Task
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.worker.assignment import Assignment


class Company:
    """What this worker's runs want and have shown of that.

    A run whose script raised an exception while others ran beside it is tried once more alone. If that one goes well,
    it was the company, and from then on runs go one after the other.

    Attributes:
        bears_none: runs go one after the other.
    """

    def __init__(self) -> None:
        self.bears_none = False
        self._suspects: set[tuple[Part, int]] = set()
        self._on_trial: tuple[Part, int] | None = None
        self._alone: tuple[Part, int] | None = None
        self._is_awaited = False  # a run that will be alone

    def may_begin(self, *, in_hand: int) -> bool:
        """Whether another run may begin beside those in hand."""
        return in_hand == 0 or not (self.bears_none or self._on_trial or self._alone or self._is_awaited)

    def bears(self, spec: StudySpec, round_: int, candidate: Candidate | None, *, in_hand: int) -> bool:
        """Whether this run may begin beside those in hand; if not, none does before they have ended."""
        self._is_awaited = in_hand > 0 and _runs_alone(spec, round_, candidate)
        return not self._is_awaited

    def begun(self, assignment: Assignment) -> None:
        """Notes what begins. Another worker may have taken the one that was to be tried alone."""
        spec, task = assignment.study.spec, assignment.task
        if self._on_trial != _key(task):
            self._on_trial = None
        if _runs_alone(spec, task.round, assignment.candidate):
            self._alone = _key(task)

    def is_doubtful(self, task: Task, outcome: Outcome, *, had_company: bool) -> bool:
        """Takes in an outcome. Whether the run should be tried again alone before it counts."""
        key = _key(task)
        if key == self._alone:
            self._alone = None
        if key == self._on_trial:
            self._on_trial = None
            self.bears_none = isinstance(outcome, Measured | Slow)
            return False
        raised = isinstance(outcome, Failed) and outcome.reason == "crash" and outcome.device is None
        if not (raised and had_company) or key in self._suspects:
            return False
        self._suspects.add(key)
        self._on_trial = key
        return True


def _runs_alone(spec: StudySpec, round_: int, candidate: Candidate | None) -> bool:
    """Whether a run confirms something, or computes on the host and moves its states there."""
    if round_ > 0:
        return True
    if candidate is None:
        return spec.offload != ("none", "none")
    offload = offload_of(spec, candidate.stage, candidate.knobs)
    return (offload.optimizer, offload.param) != ("none", "none")


def _key(task: Task) -> tuple[Part, int]:
    return (task.part, task.trial)
