"""Whether other workers have beaten, by this process's own clock: the database's may be set forward, or back."""

import time
from collections.abc import Sequence

from dsopt.store.heartbeat import LEASE_SECONDS, SILENT_SECONDS
from dsopt.store.queries import Row


class Beats:
    """What this process has seen of other workers' heartbeats."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}  # by worker: its last beat, and since when that is known

    def note(self, workers: Sequence[Row]) -> None:
        """Takes in the rows of the workers, as `queries.other_workers` gives them."""
        known, now = self._seen, time.monotonic()
        self._seen = {}
        for row in workers:
            beat, since = known.get(row["id"], (row["heartbeat_at"], now))
            self._seen[row["id"]] = (row["heartbeat_at"], since if beat == row["heartbeat_at"] else now)

    def unmoved(self) -> set[str]:
        """The workers whose last heartbeat this process has known for longer than a lease."""
        now = time.monotonic()
        return {worker_id for worker_id, (_, since) in self._seen.items() if now - since > LEASE_SECONDS}

    def is_silent(self, worker_id: str) -> bool:
        """Whether a worker has not beaten for three heartbeats while this process has looked."""
        return time.monotonic() - self._seen[worker_id][1] > SILENT_SECONDS
