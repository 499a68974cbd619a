"""What counts of each study, for pages that are asked for again and again: only what has changed is read again."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from dsopt.search.history import History
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.worker.history import HistoryReader

_MOST: Final = 100  # studies that are kept, those that were asked for last; one of 5,000 trials takes some 20 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A study as it was first read, with what reads the rest; one at a time may use it."""

    study: StoredStudy
    reader: HistoryReader
    lock: threading.Lock = field(default_factory=threading.Lock)


class Histories:
    """The histories of a storage's studies. Any number of threads may read; those of other studies do not wait."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, study: StoredStudy) -> tuple[StoredStudy, History]:
        """What counts of a study now, with the study as it was first read: models go on learning for that very spec.

        Raises:
            DsoptError: it was deleted, or somebody else wrote something that cannot be read.
        """
        known = self._of(study)
        with known.lock:
            return known.study, known.reader.read()

    def _of(self, study: StoredStudy) -> _Known:
        with self._lock:
            known = self._known.get(study.id)
        if known is None:
            known = _Known(study=study, reader=HistoryReader(self._store, study))  # reads the studies it began with
        with self._lock:
            known = self._known.setdefault(study.id, known)
            self._known.move_to_end(study.id)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return known
