"""What a worker tells those who watch it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsopt.experiment.outcome import Outcome
from dsopt.experiment.run import Progress
from dsopt.search.history import History
from dsopt.store.attempts import Task
from dsopt.store.studies import StoredStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """A run begins; `history` is what is known before it."""

    study: StoredStudy
    task: Task
    history: History


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgressed:
    """A run goes on."""

    task: Task
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A run ended, with the metric where it was measured."""

    study: StoredStudy
    task: Task
    outcome: Outcome
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSkipped:
    """A candidate needed no run: it was refused before its launch, or is the baseline under another name."""

    study: StoredStudy
    task: Task
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartsEnded:
    """A lane starts its ranks directly from now on, instead of forking them."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingEnded:
    """A lane gives each run ranks of its own from now on, instead of those that have measured another."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WroteOutside:
    """While a run went on, what looks like checkpoints appeared in the working folder. `paths` are relative to it."""

    task: Task
    paths: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageClosed:
    """A stage is done with."""

    study: StoredStudy
    stage: int
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFinished:
    """A study is finished; its result files are to be written now, before it is marked so."""

    study: StoredStudy


Happening: TypeAlias = (
    TaskStarted
    | TaskProgressed
    | TaskEnded
    | TaskSkipped
    | WarmStartsEnded
    | SharingEnded
    | WroteOutside
    | StageClosed
    | StudyFinished
)
