"""Whether runs of one worker bear each other: a script may have a port, a file or a lock of a fixed name."""

from dsopt.experiment.outcome import Failed, Measured, Outcome, Slow
from dsopt.store.attempts import Task
from dsopt.study.part import Part


class Company:
    """What this worker's runs have shown of that.

    A run whose script raised an exception while others ran beside it is tried once more alone. If that one goes well,
    it was the company, and from then on runs go one after the other.

    Attributes:
        bears_none: runs go one after the other.
    """

    def __init__(self) -> None:
        self.bears_none = False
        self._suspects: set[tuple[Part, int]] = set()
        self._on_trial: tuple[Part, int] | None = None

    def may_begin(self, *, in_hand: int) -> bool:
        """Whether another run may begin beside those in hand."""
        return in_hand == 0 or not (self.bears_none or self._on_trial)

    def begun(self, task: Task) -> None:
        """Notes what begins. Another worker may have taken the one that was to be tried alone."""
        if self._on_trial != _key(task):
            self._on_trial = None

    def is_doubtful(self, task: Task, outcome: Outcome, *, had_company: bool) -> bool:
        """Takes in an outcome. Whether the run should be tried again alone before it counts."""
        key = _key(task)
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


def _key(task: Task) -> tuple[Part, int]:
    return (task.part, task.trial)
