"""What is at stake in a run that begins: what is believed of it and of the best, and what its seconds must be worth."""

import math
from collections.abc import Sequence
from typing import Final

from dsopt.experiment.stake import STAKED_METRICS, Stake
from dsopt.search.believed import Believed
from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.history import BASELINE, History
from dsopt.search.nodes import effect_on
from dsopt.search.payback import least_worth
from dsopt.search.run_cost import RunCost
from dsopt.search.sharding import world_size
from dsopt.search.speed import metric_of
from dsopt.study.launch_noise import UNEXPLAINED, USUAL
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.step_noise import pooled
from dsopt.study.trial_attributes import Phase

_NAMED: Final = (BASELINE, "profile")
_ENOUGH: Final = 2  # runs that show what a node adds


def stake_of(
    spec: StudySpec,
    name: str,
    phase: Phase | None,
    candidate: Candidate | None,
    history: History,
    nodes: Sequence[str] = (),
    *,
    is_repeat: bool = False,
) -> Stake | None:
    """What is at stake in a run on these nodes; None if it must be precise whatever it shows.

    What has run before (`is_repeat`) runs again to show what it does, so it is not stopped for being slow.

    Everything is as these nodes would show it: a slow one is no reason to stop what is fast elsewhere.
    Runs that find a stage's range of micro-batch sizes are compared with each other, and so are those of a comparison.
    """
    if spec.autotuning.metric not in STAKED_METRICS or phase == "range" or spec.compare:
        return None
    facts = history.facts_for(spec)
    if facts is None or history.telling_run is None or (candidate is None and name not in _NAMED):
        return _first(spec)
    believed = Believed(spec, facts, history)
    known = believed.index_of(name)
    scores = believed.scores
    if known is None and candidate is None:
        return _first(spec)
    if known is None and candidate is not None:
        scores, known = believed.of_new(Grid.of([candidate])), 0
    assert known is not None
    others = [index for index in believed.winners if believed.shown[index].name != name]
    here = effect_on(nodes, believed.nodes)
    best = max((float(believed.scores.mean[index]) + here.mean for index in others), default=None)
    return Stake(
        metric=spec.autotuning.metric,
        mean=float(scores.mean[known]) + here.mean,
        variance=float(scores.variance[known]),
        best=best,
        best_value=metric_of(spec, best) if best is not None else None,
        launch=believed.launch**2 + here.variance,
        spread=believed.launch**2 + believed.steptime.discrepancy**2,
        noise=believed.speeds.noise,
        per_second=least_worth(spec, history) / RunCost(spec, facts, history).mean_seconds,
        may_stop=spec.measurement.race and not is_repeat and name not in _NAMED and _is_known(nodes, believed),
        gpus=_gpus(spec, facts, believed.shown[known].candidate if candidate is None else candidate),
    )


def _gpus(spec: StudySpec, facts: ModelFacts, candidate: Candidate) -> int:
    """On how many GPUs a candidate runs, if the metric is that of one."""
    if spec.autotuning.metric != "throughput_per_gpu":
        return 1
    nodes, ranks = world_size(spec, facts, candidate.knobs)
    return nodes * ranks


def _is_known(nodes: Sequence[str], believed: Believed) -> bool:
    """Whether a run that looks slow is not so by its nodes: by those that the study had, or that had runs enough."""
    if len(believed.speeds.nodes | set(nodes)) < 2:
        return True
    return all(name in believed.nodes and believed.nodes[name].runs >= _ENOUGH for name in nodes)


def _first(spec: StudySpec) -> Stake:
    """Before anything is known."""
    return Stake(
        metric=spec.autotuning.metric,
        mean=0.0,
        variance=math.inf,
        best=None,
        best_value=None,
        launch=USUAL**2,
        spread=USUAL**2 + UNEXPLAINED**2,
        noise=pooled([]),
        per_second=0.0,
        may_stop=False,
    )
