"""The events of a worker at work: a closed union of values, `Event`. `dsopt.events` is this module."""

from typing import TypeAlias

from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.experiment.run import Progress
from dsopt.search.history import History
from dsopt.store.attempts import Task
from dsopt.store.stored import StoredStudy
from dsopt.worker.happenings import (
    DevicesAwaited,
    DeviceSetAside,
    DriverSilent,
    FilesPutBack,
    Happening,
    HelperReplaced,
    NodeAvoided,
    NodeMeasured,
    RunsAlone,
    SavesInPlace,
    ScriptChanged,
    SecretsWithheld,
    StageClosed,
    StudyFinished,
    StudyProgressed,
    TaskEnded,
    TaskProgressed,
    TaskSkipped,
    TaskStarted,
    TaskTriedAgain,
    TrialLeftOut,
    WarmStartsEnded,
    WorkerPaused,
    WorkerWentOn,
    WroteOutside,
)

Event: TypeAlias = Happening

__all__ = [
    "Cancelled",
    "DeviceSetAside",
    "DevicesAwaited",
    "DriverSilent",
    "Event",
    "Failed",
    "FilesPutBack",
    "HelperReplaced",
    "History",
    "Infeasible",
    "Measured",
    "NodeAvoided",
    "NodeMeasured",
    "Outcome",
    "Progress",
    "RunsAlone",
    "SavesInPlace",
    "ScriptChanged",
    "SecretsWithheld",
    "Slow",
    "StageClosed",
    "StoredStudy",
    "StudyFinished",
    "StudyProgressed",
    "Task",
    "TaskEnded",
    "TaskProgressed",
    "TaskSkipped",
    "TaskStarted",
    "TaskTriedAgain",
    "TrialLeftOut",
    "WarmStartsEnded",
    "WorkerPaused",
    "WorkerWentOn",
    "WroteOutside",
]
