"""Which runs of one worker bear others beside them.

Runs of other devices still share the machine's cores, memory and disks. What is compared in the end runs alone, and so
does what computes on the host. And a script may have a port, a file or a lock of a fixed name.
"""

from typing import Final

from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.protocol.out_of_memory import is_of_the_host
from dsopt.search.sharding import offload_of
from dsopt.store.attempts import Task
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.worker.assignment import Assignment

_ENOUGH: Final = 2
_SHARED: Final = ("host_oom", "timeout")  # others beside a run use up the host's memory and time, too
_PORT: Final = "address already in use"  # the one fault of the machine that may come of others beside a run


class Company:
    """What this worker's runs want and have shown of that.

    A run whose script raised an exception, filled the host's memory or took too long while others ran beside it is
    tried once more alone. If that one goes well, it was the company, and from then on runs go one after the other. Two
    that raise, or take too long, alone, too, end the doubt about such.

    Attributes:
        bears_none: runs go one after the other.
    """

    def __init__(self) -> None:
        self.bears_none = False
        self._waiting: set[tuple[Part, int]] = set()  # to be tried alone
        self._tried: set[tuple[Part, int]] = set()
        self._on_trial: tuple[Part, int] | None = None
        self._own_faults = 0  # runs whose script raised an exception alone, too
        self._own_ooms = 0  # runs for which the host's memory did not suffice alone, too
        self._own_timeouts = 0  # runs that took too long alone, too
        self._alone: tuple[Part, int] | None = None
        self._is_awaited = False  # a run that will be alone

    def may_begin(self, *, in_hand: int) -> bool:
        """Whether another run may begin beside those in hand."""
        return in_hand == 0 or not (
            self.bears_none or self._waiting or self._on_trial or self._alone or self._is_awaited
        )

    def bears(self, spec: StudySpec, round_: int, candidate: Candidate | None, *, is_new: bool, in_hand: int) -> bool:
        """Whether this run may begin beside those in hand; if not, none does before they have ended.

        Trials that were begun before come first. So where a new one comes that is no proof, others have taken what
        waits.
        """
        if is_new and not round_:  # a proof comes before what waits
            self._waiting.clear()
        self._is_awaited = in_hand > 0 and _runs_alone(spec, round_, candidate)
        return not self._is_awaited

    def begun(self, assignment: Assignment) -> None:
        """Notes what begins."""
        spec, task = assignment.study.spec, assignment.task
        if task.key in self._waiting:
            self._waiting.remove(task.key)
            self._on_trial = task.key
        if _runs_alone(spec, task.round, assignment.candidate):
            self._alone = task.key

    def is_doubtful(self, task: Task, outcome: Outcome, *, had_company: bool) -> bool:
        """Takes in an outcome. Whether the run should be tried again alone before it counts."""
        key = task.key
        if key == self._alone:
            self._alone = None
        if key == self._on_trial:
            self._on_trial = None
            self.bears_none = self.bears_none or isinstance(outcome, Measured | Slow)
            self._own_faults += _raised(outcome)
            self._own_ooms += isinstance(outcome, Infeasible) and outcome.reason == "oom"
            self._own_timeouts += isinstance(outcome, Failed) and outcome.reason == "timeout"
            if _says_nothing(outcome):
                self._tried.discard(key)
            return False
        if not (self._is_in_doubt(outcome) and had_company) or key in self._tried:
            return False
        self._tried.add(key)
        self._waiting.add(key)
        return True

    def _is_in_doubt(self, outcome: Outcome) -> bool:
        if _raised(outcome):
            return self._own_faults < _ENOUGH
        reason = outcome.reason if isinstance(outcome, Failed | Infeasible) else None
        if isinstance(outcome, Infeasible) and reason == "oom":  # of ranks that compute on the host
            return self._own_ooms < _ENOUGH and is_of_the_host(outcome.message)
        return reason in _SHARED and not (reason == "timeout" and self._own_timeouts >= _ENOUGH)

    def failed_beside_others(self, task: Task) -> bool:
        """Whether an attempt of this task does not count, because it had company."""
        return task.key in self._tried


def _raised(outcome: Outcome) -> bool:
    """Whether the script raised an exception that others beside it may be the reason of."""
    if not isinstance(outcome, Failed):
        return False
    return outcome.reason == "crash" or (outcome.reason == "machine" and _PORT in outcome.message.lower())


def _says_nothing(outcome: Outcome) -> bool:
    """Whether a run that was tried alone has not shown what it does alone."""
    if isinstance(outcome, Failed):
        return outcome.reason == "taken" or (outcome.reason == "machine" and not _raised(outcome))
    return isinstance(outcome, Cancelled)


def _runs_alone(spec: StudySpec, round_: int, candidate: Candidate | None) -> bool:
    """Whether a run confirms something, or computes on the host and moves its states there."""
    if round_ > 0:
        return True
    if candidate is None:
        return spec.offload != ("none", "none")
    offload = offload_of(spec, candidate.stage, candidate.knobs)
    return (offload.optimizer, offload.param) != ("none", "none")
