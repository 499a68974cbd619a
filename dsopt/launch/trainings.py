"""A training that `dsopt run` has started: its ranks are known whoever else of it has ended, by their environment."""

import contextlib
import os
import uuid
from dataclasses import dataclass, field
from typing import Final

from dsopt.launch.processes import process_folders, variables_of

_VARIABLE: Final = "DSOPT_TRAINING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the ranks of a training are known by.

    Attributes:
        script: what their command line names; what a script leaves behind for good, such as a server, does not.
        key: what no other training has in its environment.
    """

    script: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def environment(self) -> dict[str, str]:
        """What the first process of the training has more."""
        return {_VARIABLE: self.key}

    def living(self) -> list[int]:
        """Which ranks, and forks of them, live on this machine now, by their numbers."""
        wanted, script = os.fsencode(f"{_VARIABLE}={self.key}"), os.fsencode(self.script)
        found = []
        for process in process_folders():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
                if wanted in variables_of(process) and script in (process / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return [pid for pid in found if pid != os.getpid()]

    def __str__(self) -> str:
        return f"{self.key} {self.script}"

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """The mark that `str` gave; None: there is none."""
        key, _, script = text.partition(" ")
        return cls(key=key, script=script) if script else None
