"""What a worker tells its watchers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from dsopt.experiment.outcome import Failed, Infeasible, Outcome
from dsopt.experiment.run import Progress
from dsopt.launch.devices import DevicePool
from dsopt.search.history import History
from dsopt.store.attempts import Task
from dsopt.store.stored import StoredStudy
from dsopt.study.node_rates import NodeRates
from dsopt.study.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """A run begins; `history` is what is known before it."""

    study: StoredStudy
    task: Task
    history: History


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgressed:
    """A run makes progress."""

    task: Task
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A run ended; `value` is the metric if it was measured."""

    study: StoredStudy
    task: Task
    outcome: Outcome
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTriedAgain:
    """A run failed, which may not be its candidate's fault, so that it is tried again.

    Attributes:
        task: the run.
        outcome: what came of it.
        is_elsewhere: whether other nodes are to try it before this one does.
    """

    task: Task
    outcome: Failed | Infeasible
    is_elsewhere: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSkipped:
    """A candidate needed no run: dsopt refused it before its launch, or it is the baseline under another name."""

    study: StoredStudy
    task: Task
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLeftOut:
    """A trial in an Optuna study does not count, because the study has not made it; `why` goes on after "it"."""

    study: StoredStudy
    part: Part
    trial: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartsEnded:
    """From now on a lane starts its ranks directly instead of forking them."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSetAside:
    """A GPU of this worker has failed, by its index. The worker goes on without it, and the run is tried again."""

    task: Task
    device: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMeasured:
    """A worker has measured its node; `rates` is None if the devices of `pool` did not show theirs: `why` says why."""

    node: str
    pool: DevicePool
    rates: NodeRates | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAvoided:
    """A node was lost during a run, or, for now, a training has it. The run is tried again, if possible without it."""

    task: Task
    node: str
    why: str
    is_for_now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAlone:
    """A run that failed beside others went well alone. From now on this worker's runs go one after the other."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesInPlace:
    """A run has saved in the working folder. Runs there go one after the other, or one would meet another's files."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesAwaited:
    """A worker has a run to begin, and others have its devices.

    Attributes:
        study: the study that it works on.
        holders: who has them, each as a number of devices, the study's name and the node. The name is None if the study
            is deleted, and empty if a worker measures its node.
        engine: what grants devices and has none now; None: this database knows who has them.
        training: how many of this machine a training of `dsopt run` has.
        strangers: what uses devices that this database does not know of, such as programs on GPUs, as text.
        files_of: the study whose run saves in the same working folder, where they go one after the other, empty if
            it is deleted; None: none.
    """

    study: StoredStudy
    holders: Sequence[tuple[int, str | None, str]]
    engine: str | None = None
    training: int = 0
    strangers: Sequence[str] = ()
    files_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptChanged:
    """Files of the script have changed since so many runs before (`runs`), and a run of it begins."""

    study: StoredStudy
    task: Task
    files: Sequence[str]
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperReplaced:
    """A helper process of this worker had died; another one has taken its place. `what` is a sentence."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSilent:
    """The driver of this worker's GPUs does not answer, so that it cannot see whether others use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsWithheld:
    """These variables of the worker look like secrets, so the runs of a study do not get them."""

    study: StoredStudy
    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WroteOutside:
    """During a run, something that looks like checkpoints appeared. `paths` are relative to the working folder."""

    task: Task
    paths: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPutBack:
    """The study's first run has written to files that were there before. They are as they were.

    Attributes:
        task: the run.
        names: of what stood in their place when it ended.
        folder: where that is now.
    """

    task: Task
    names: Sequence[str]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StageClosed:
    """A stage is done."""

    study: StoredStudy
    stage: int
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgressed:
    """More of a study is over than the last event said, whoever ran it; also sent at the start of each study."""

    study: StoredStudy
    history: History


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFinished:
    """A study is finished, and its result files are written. Every worker that was working on it sends this.

    Attributes:
        study: the study.
        files: its result files, absolute.
    """

    study: StoredStudy
    files: Sequence[Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPaused:
    """The worker cannot go on now, and waits until it can; its current runs go on."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWentOn:
    """The worker goes on after a pause."""


Happening: TypeAlias = (
    TaskStarted
    | TaskProgressed
    | TaskEnded
    | TaskTriedAgain
    | TaskSkipped
    | TrialLeftOut
    | WarmStartsEnded
    | DeviceSetAside
    | NodeAvoided
    | NodeMeasured
    | RunsAlone
    | SavesInPlace
    | DevicesAwaited
    | ScriptChanged
    | HelperReplaced
    | DriverSilent
    | SecretsWithheld
    | WroteOutside
    | FilesPutBack
    | StageClosed
    | StudyProgressed
    | StudyFinished
    | WorkerPaused
    | WorkerWentOn
)
