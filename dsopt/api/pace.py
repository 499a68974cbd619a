"""How fast the runs of a study follow each other, while somebody watches."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dsopt.search.history import History
from dsopt.store.stored import StoredStudy


@dataclass(slots=True)
class Pace:
    """The seconds from the end of one run of a study to the end of the next, since it was first seen.

    `clock` gives seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _since: dict[str, tuple[float, int]] = field(default_factory=dict)  # by study: when it was first seen, runs by then

    def after(self, study: StoredStudy, history: History) -> float | None:
        """The pace, now that so much of a study is over; None while no run has ended since it was first seen."""
        over = sum(o.is_spent and o.state != "running" for o in history.everything)
        began, before = self._since.setdefault(study.id, (self.clock(), over))
        return (self.clock() - began) / (over - before) if over > before else None
