"""Runs all tuners on all cases, in processes of their own."""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.search.cases import Case
from benchmarks.search.oracle import oracle
from benchmarks.search.results import Row, row
from benchmarks.search.tuners import tuners

# DeepSpeed's autotuner orders experiments by the hash of their text; threads of small fits are only in each other's way
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One case for all tuners, or for those that are named."""

    case: Case
    is_fast: bool
    only: tuple[str, ...] = ()


def run_all(tasks: Sequence[Task], jobs: int) -> Iterator[Row]:
    """A row for each tuner and task, in the order of the tasks; says on stderr how far it is."""
    os.environ.update(_ENVIRONMENT)  # for the processes to come
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for done, rows in enumerate(pool.imap(run_task, tasks), start=1):
            yield from rows
            print(f"\r{done}/{len(tasks)} cases, {time.monotonic() - started:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)


def run_task(task: Task) -> list[Row]:
    """What every tuner does on one case."""
    case = task.case
    truth = oracle(case.machine, fast=task.is_fast)
    return [
        row(
            tuner.tune(case.machine, case.seed),
            case.machine,
            truth,
            cases=case.cases,
            noise=case.noise,
            is_fast=task.is_fast,
            seed=case.seed,
        )
        for tuner in tuners(fast=task.is_fast)
        if not task.only or tuner.name in task.only
    ]
