"""The best configuration of a finished study: as a candidate, as its runs had it, and for a training."""

from dataclasses import dataclass
from typing import Any

from dsopt.report.batch_size import batch_advice, scale_rates
from dsopt.report.partitioned import saving_whole
from dsopt.search.history import BASELINE, History
from dsopt.search.standing import compare
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.command import LaunchCommand
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best configuration, ready to use: DeepSpeed's configuration and the command that goes with it."""

    ds_config: dict[str, Any]
    command: LaunchCommand


def optimal_candidate(spec: StudySpec, history: History) -> Candidate | None:
    """The best configuration as a candidate; None when it is the user's own.

    Only for histories for which `compare` gives a result.
    """
    result = compare(spec, history)
    assert result is not None
    if result.best == BASELINE:
        return None
    return next(o.candidate for o in history.measured if o.name == result.best)


def optimum(spec: StudySpec, history: History, *, scale_lr: bool = False) -> Optimum:
    """The best configuration of a study that has a result, for a training.

    It saves whole weights, if the user's own did so; with `scale_lr`, its learning rate fits its batch.
    """
    candidate = optimal_candidate(spec, history)
    found = _as_run(spec, history, candidate)
    config, command = saving_whole(spec, history, candidate, found.ds_config), found.command
    advice = batch_advice(spec, history, candidate)
    if scale_lr and advice is not None:
        config, command = scale_rates(advice, config, command)
    return Optimum(ds_config=config, command=command)


def measured_optimum(spec: StudySpec, history: History) -> Optimum:
    """The best configuration of a study that has a result, as its runs had it."""
    return _as_run(spec, history, optimal_candidate(spec, history))


def _as_run(spec: StudySpec, history: History, candidate: Candidate | None) -> Optimum:
    config = run_config(spec, candidate, history.aio)
    return Optimum(ds_config=config, command=candidate_command(spec, candidate))
