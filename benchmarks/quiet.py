"""How much of this machine others use: what was timed beside other work is no measurement of its own."""

import resource
import time
from dataclasses import dataclass

import psutil

_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Busy:
    """Processor time since the machine's start, in seconds: all of it that was used, and what we and ours used."""

    moment: float
    used: float
    ours: float

    @classmethod
    def now(cls) -> "Busy":
        """The counters; of our children only those that have ended and were waited for."""
        times = psutil.cpu_times()
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(
            time.monotonic(),
            sum(times) - times.idle - times.iowait - times.guest - times.guest_nice,
            sum(usage.ru_utime + usage.ru_stime for usage in own),
        )

    def elsewhere(self) -> float:
        """Share of the machine's processors that others used since then, from 0 to 1."""
        now = Busy.now()
        others = (now.used - self.used) - (now.ours - self.ours)
        return max(0.0, others / ((now.moment - self.moment) * (psutil.cpu_count() or 1)))


def wait_until_quiet(share: float, patience_seconds: float) -> None:
    """Returns when others use less than a share of the machine, or patience is spent."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        before = Busy.now()
        time.sleep(_LOOK_SECONDS)
        if before.elsewhere() < share:
            return
