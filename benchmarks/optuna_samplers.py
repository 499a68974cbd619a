"""XGBoostSampler against Optuna's own samplers, 25 trials each, on usual test functions and on the recorded grids.

    python -m benchmarks.optuna_samplers [--seeds 50] [--held-out] [--samplers xgboost tpe ...] [--jobs 2]

Every sampler has its defaults, and on the grids Optuna's have what `benchmarks.search` gives to them (four trials to
start with, several parameters at once). Choices are made on seeds from 0
on; `--held-out` takes those from 100,000 on, which are there to be looked at once. A function's regret is the best
feasible value of a study less the smallest there is; a grid's is by how much the best of it is truly faster than
the choice.
"""

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from benchmarks.functions import FUNCTIONS, Function
from benchmarks.replay import Recorded
from benchmarks.search.optuna_tuners import OptunaTuner
from benchmarks.search.oracle import oracle
from dsopt.optuna import XGBoostSampler

_TRIALS: Final = 25
_HELD_OUT: Final = 100_000
_GRIDS: Final = {path.parent.name: path for path in sorted((Path(__file__).parent / "grids").glob("*/*.parquet"))}
_SAMPLERS: Final = ("xgboost", "tpe", "tpe multivariate", "gp", "random")
# a study without a feasible trial is worse than every other one
_NOTHING: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    problem: str
    sampler: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    task: _Task
    regret: float
    seconds_per_trial: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--samplers", nargs="+", choices=_SAMPLERS, default=list(_SAMPLERS))
    parser.add_argument("--problems", nargs="+", default=[*(f.name for f in FUNCTIONS), *_GRIDS])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    first = _HELD_OUT if args.held_out else 0
    tasks = [
        _Task(problem=problem, sampler=sampler, seed=seed)
        for problem in args.problems
        for sampler in args.samplers
        for seed in range(first, first + args.seeds)
    ]
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with ProcessPoolExecutor(args.jobs) as pool:
        _show(list(pool.map(_run, tasks, chunksize=5)), args.samplers)


def _run(task: _Task) -> _Result:
    warnings.simplefilter("ignore")  # of samplers and arguments that Optuna calls experimental
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    began = time.perf_counter()
    if task.problem in _GRIDS:
        regret = _on_grid(Recorded.read(_GRIDS[task.problem]), task)
    else:
        regret = _on_function(next(f for f in FUNCTIONS if f.name == task.problem), task)
    return _Result(task=task, regret=regret, seconds_per_trial=(time.perf_counter() - began) / _TRIALS)


def _on_function(function: Function, task: _Task) -> float:
    study = optuna.create_study(sampler=_sampler(task))
    best = _NOTHING
    for _ in range(_TRIALS):
        trial = study.ask(dict(function.space))
        excess = function.excess(trial.params) if function.excess else 0.0
        if function.excess:
            trial.set_constraint("limit", excess if function.is_told else float(np.sign(excess)))
        if excess > 0 and not function.is_told:
            study.tell(trial, state=TrialState.PRUNED)
            continue
        value = function.value(trial.params)
        study.tell(trial, value)
        if excess <= 0:
            best = min(best, value - function.least)
    return best


def _on_grid(machine: Recorded, task: _Task) -> float:
    name = "tpe" if task.sampler == "tpe multivariate" else task.sampler
    record = OptunaTuner(sampler=name, runs=_TRIALS, fast=False).tune(machine, task.seed)  # type: ignore[arg-type]
    if record.choice_true_throughput is None:
        return _NOTHING
    return oracle(machine, fast=False).throughput / record.choice_true_throughput - 1


def _sampler(task: _Task) -> BaseSampler:
    match task.sampler:
        case "xgboost":
            return XGBoostSampler(seed=task.seed)
        case "tpe":
            return optuna.samplers.TPESampler(seed=task.seed)
        case "tpe multivariate":
            return optuna.samplers.TPESampler(seed=task.seed, multivariate=True, n_startup_trials=8)
        case "gp":
            return optuna.samplers.GPSampler(seed=task.seed)
        case _:
            return optuna.samplers.RandomSampler(seed=task.seed)


def _show(results: Sequence[_Result], samplers: Sequence[str]) -> None:
    """Median regrets, and against each other sampler the share of seeds in which ours is better (ties: half)."""
    regrets = {(r.task.problem, r.task.sampler, r.task.seed): r.regret for r in results}
    problems = list(dict.fromkeys(r.task.problem for r in results))
    seeds = sorted({r.task.seed for r in results})
    print("| problem | " + " | ".join(f"{s}" + (", ours better" if s != samplers[0] else "") for s in samplers) + " |")
    print("|---|" + "---:|" * len(samplers))
    for problem in problems:
        ours = np.array([regrets[problem, samplers[0], seed] for seed in seeds])
        cells = []
        for sampler in samplers:
            theirs = np.array([regrets[problem, sampler, seed] for seed in seeds])
            share = ((ours < theirs) + 0.5 * (ours == theirs)).mean()
            cells.append(f"{np.median(theirs):.3g}" + (f", {share:.0%}" if sampler != samplers[0] else ""))
        print(f"| {problem} | " + " | ".join(cells) + " |")
    for sampler in samplers:
        seconds = [r.seconds_per_trial for r in results if r.task.sampler == sampler and r.task.problem not in _GRIDS]
        if seconds:
            print(f"{sampler}: {1000 * np.mean(seconds):.1f} ms a trial")


if __name__ == "__main__":
    main()
