"""The folder of one attempt. This class owns every path in it. The training process imports it, too."""

import contextlib
import json
import os
import platform
import shutil
import stat
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.given import open_given
from dsopt.protocol.private import create_private, make_private
from dsopt.protocol.whose import is_users

RUN_DIR_VARIABLE: Final = "DSOPT_RUN_DIR"
ASIDE: Final = "dsopt-aside"  # a folder of the user's files, while a run lasts
_UNDONE: Final = ".undone-"
# on another node, where ranks have a run directory of their own: the worker's
WORKERS_RUN_DIR_VARIABLE: Final = "DSOPT_WORKERS_RUN_DIR"
MEMORY_LIMIT_VARIABLE: Final = "DSOPT_MEMORY_LIMIT_BYTES"
DEVICE_KIND_VARIABLE: Final = "DSOPT_DEVICE_KIND"
COUNT_FLOPS_VARIABLE: Final = "DSOPT_COUNT_FLOPS"
PLAIN_VARIABLE: Final = "DSOPT_PLAIN"
BEGAN_VARIABLE: Final = "DSOPT_BEGAN_NS"  # when the first of the runs began that go on beside each other
PROTOCOL_VARIABLES: Final = frozenset(
    [
        *(RUN_DIR_VARIABLE, WORKERS_RUN_DIR_VARIABLE, MEMORY_LIMIT_VARIABLE),
        *(DEVICE_KIND_VARIABLE, COUNT_FLOPS_VARIABLE, PLAIN_VARIABLE, BEGAN_VARIABLE),
    ]
)
# only reserves room, which forked ranks fill with their own environment
ROOM_VARIABLE: Final = "DSOPT_WARM_ROOM"
# What differs between two runs of one study on the same devices. If ranks are forked from a process that has imported a
# module, the import must not depend on these.
RUN_VARIABLES: Final = PROTOCOL_VARIABLES | {
    "MASTER_PORT",
    "TORCHELASTIC_ERROR_FILE",
    "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "MLFLOW_TRACKING_URI",
    "CLEARML_CACHE_DIR",
}


class RunDir:
    """Paths of one attempt, in the layout of DeepSpeed's autotuner plus the events.

    Args:
        path: the folder.
        host: a machine that is gone, by its name, for whose files this one sees to what the run did; None: for its own.
    """

    def __init__(self, path: str | Path, host: str | None = None) -> None:
        self.path = Path(path)
        self.host = host

    @classmethod
    def create(cls, results_dir: Path, name: str, owner: str = "", maker: str = "") -> "RunDir":
        """Creates a new folder: `name`, then `name.2`, `name.3` …, safely even if others do the same.

        `owner` identifies the database that the run is of, and `maker` the process that makes it.
        """
        make_private(results_dir)
        number = 1
        while True:
            path = results_dir / (name if number == 1 else f"{name}.{number}")
            try:
                make_private(path, exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                run_dir = cls(path)
                with create_private(run_dir.mark) as mark:
                    mark.write(f"{owner}\n{maker}")
                return run_dir

    def discard(self) -> None:
        """Removes a folder in which no run has begun. If something else is in it, or it is gone, it stays so."""
        with contextlib.suppress(OSError):
            self.mark.unlink(missing_ok=True)
            self.path.rmdir()

    @property
    def mark(self) -> Path:
        """Tells that dsopt has made this folder for a run: nobody who can only write to a database has."""
        return self.path / ".dsopt-run"

    @property
    def is_own(self) -> bool:
        """Whether this user's worker has made the folder; nobody else can have put a link there.

        Raises:
            OSError: there is no folder of a run, or it is closed to us.
        """
        found = self.mark.lstat()
        is_one = found.st_uid == self.path.stat().st_uid and stat.S_ISREG(found.st_mode)
        return is_one and is_users(found.st_uid, self.path)

    def is_of_another(self, owner: str) -> bool:
        """Whether the run is known to be of another database."""
        return self._made_by()[0] not in ("", owner)

    @property
    def maker(self) -> str:
        """Identifies the process that made it; empty if that is not known."""
        return self._made_by()[1]

    def _made_by(self) -> tuple[str, str]:
        with contextlib.suppress(OSError):
            owner, _, maker = self.mark.read_text("utf-8", errors="replace").partition("\n")
            return owner, maker
        return "", ""

    @property
    def ds_config(self) -> Path:
        return self.path / "ds_config.json"

    @property
    def command(self) -> Path:
        return self.path / "cmd.txt"

    @property
    def description(self) -> Path:
        return self.path / "exp.json"

    @property
    def simulation(self) -> Path:
        """What a simulated run simulates."""
        return self.path / "simulation.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def before(self) -> Path:
        """What was there when it began."""
        return self.path / "before.json"

    @property
    def lost(self) -> Path:
        """Tells that a node was lost during the run, and perhaps what that one has done to files is not undone."""
        return self.path / ".lost"

    @property
    def stdout(self) -> Path:
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.path / "stderr.log"

    @property
    def imports(self) -> Path:
        return self.path / "imports.json"

    @property
    def node_environment(self) -> Path:
        """The variables of ranks on other nodes, while the run lasts."""
        return self.path / "node_environment"

    def remove_node_environment(self) -> None:
        """Removes that file; what is there instead, such as in a folder that is no run's, stays."""
        own = f"{RUN_DIR_VARIABLE}={self.path}".encode()
        with contextlib.suppress(OSError), open_given(self.node_environment) as file:
            if own in file.read().splitlines():
                self.node_environment.unlink()

    def own_path(self, name: str, given: str) -> Path:
        """Where a run writes what the user's own training writes to `given`: a folder, or a file of that name in one.

        `name` says what for; this creates the folder.
        """
        folder = self.path / "own" / name.lstrip("-")
        make_private(folder)
        path = Path(given)
        is_file = path.suffix[1:2].isalpha() and not given.endswith("/")
        return folder / path.name if is_file else folder

    @property
    def written(self) -> tuple[Path, ...]:
        """The folders that its script writes to: by flags that name one, and by trackers."""
        return self.path / "own", self.path / "mlruns", self.path / "clearml"

    @property
    def aside(self) -> Path:
        """The user's files that its script has removed or replaced, while the run lasts."""
        return self.path / ASIDE

    def is_record(self, path: Path) -> bool:
        """Whether dsopt puts the user's files back with it: events, marks, and what is aside."""
        is_told = path.parent == self.path and path.name.startswith("events-rank")
        return is_told or path in (self.mark, self.beside) or path.is_relative_to(self.aside)

    @property
    def replaced(self) -> Path:
        """What had come in the place of the user's files that were put back."""
        return self.path / "replaced"

    @property
    def beside(self) -> Path:
        """Names the runs of other studies that went on in its working folder, a line each."""
        return self.path / ".beside"

    @property
    def undone(self) -> Path:
        """Tells that what the run did to files of this machine is undone: whatever is there since is the user's.

        For another machine that is gone it is another one: that may come back, and has to look again.
        """
        if self.host is None or (own := self.undone_on(self.host)).exists():
            return self.undone_on(self.host or platform.node())
        return own.with_name(f"{own.name}-elsewhere")

    def undone_on(self, host: str) -> Path:
        """The same of a machine of this name."""
        return self.path / f"{_UNDONE}{host.replace(os.sep, '_')}"

    @property
    def may_go_on(self) -> bool:
        """Whether nobody has undone yet what it did."""
        return not any(self.path.glob(f"{_UNDONE}*"))

    def sign(self) -> None:
        """Notes that the run goes on."""
        with contextlib.suppress(OSError):  # it has not begun
            os.utime(self.stdout)

    def now_ns(self) -> int:
        """The time by the clock that dates files in it, as far as it can be asked: nanoseconds since the epoch."""
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=self.path) as file:
            return os.fstat(file.fileno()).st_mtime_ns
        return time.time_ns()

    def last_sign_ns(self) -> int:
        """When it last went on, or its ranks last wrote something, in nanoseconds since the epoch."""
        logs = [path for path in (self.mark, self.stdout, self.stderr, *self.all_events()) if path.exists()]
        return max((path.stat().st_mtime_ns for path in logs), default=0)

    def remove_own(self, name: str) -> None:
        """Removes what a run has written there, once nobody needs it."""
        shutil.rmtree(self.path / "own" / name, ignore_errors=True)

    def events(self, rank: int) -> Path:
        return self.path / f"events-rank{rank}.jsonl"

    def all_events(self) -> list[Path]:
        """The existing event files, one per rank."""
        return sorted(path for path in self.path.glob("events-rank*.jsonl") if path.is_file())

    def all_former_events(self) -> list[Path]:
        """The same of a former start."""
        return sorted(self.former.glob("events-rank*.jsonl"))

    @property
    def former(self) -> Path:
        """What the ranks of a former start wrote."""
        return self.path / "warm"

    def set_aside(self) -> None:
        """Moves what ranks wrote so far there, so that another start begins without it."""
        make_private(self.former, exist_ok=False)
        for path in (self.stdout, self.stderr, *self.all_events()):
            if path.exists():
                path.rename(self.former / path.name)
        self.undone.unlink(missing_ok=True)  # last: there is nothing to undo now

    def write_json(self, path: Path, content: Any) -> None:  # noqa: ANN401 - any JSON value
        """Writes to a name that nobody else has, then renames, so that no reader sees half a file."""
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with create_private(temporary) as file:
                file.write(json.dumps(content, indent=2) + "\n")
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def from_environment() -> RunDir | None:
    """The run directory of the attempt that this process belongs to, if any."""
    path = os.environ.get(RUN_DIR_VARIABLE)
    return RunDir(path) if path else None
