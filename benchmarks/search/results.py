"""One row of results: a record beside the truth, reduced to what figures and plots are made of."""

from dataclasses import dataclass
from typing import Literal

from benchmarks.search.machine import Machine, shown
from benchmarks.search.oracle import Oracle
from benchmarks.search.records import Record
from dsopt.study.space import ACCUMULATION, MICRO_BATCH

Cases = Literal[
    "published",
    "held-out",
    "development",
    "recorded",
    "measured",
    "measured-development",
    "recomputing",
    "recomputing-development",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one tuner did on one case.

    Attributes:
        cases: which set the case is of.
        noise: coefficient of variation of a step; None where steps were recorded.
        is_fast: whether the documented knobs were left out.
        case, tuner, seed: of the record.
        choice: in short.
        launches, experiments, experiments_to_choice, ooms, cluster_seconds: of the record.
        share: true throughput of the choice ÷ that of the oracle; 0 where it does not run.
        baseline_share: the same of the user's own configuration.
        shares: of what would be chosen after each launch; None where nothing runs yet.
        seconds: cluster seconds after each launch.
        exceeds_batch: whether the choice has a larger global batch than the user allows.
        error: what the tuner raised instead of an answer, or None.
        interval_holds: whether the stated interval of the factor over the baseline contains the true factor.
        memory_errors: relative, of predicted peak memory.
        optimum_ruled_out: whether the oracle's configuration was held to be infeasible.
    """

    cases: Cases
    noise: float | None
    is_fast: bool
    case: str
    tuner: str
    seed: int
    choice: str
    launches: int
    experiments: int
    experiments_to_choice: int
    ooms: int
    cluster_seconds: float
    share: float
    baseline_share: float
    shares: tuple[float | None, ...]
    seconds: tuple[float, ...]
    exceeds_batch: bool
    error: str | None
    interval_holds: bool | None
    memory_errors: tuple[float, ...]
    optimum_ruled_out: bool

    def share_after(self, launches: int) -> float:
        """Share of the oracle of what would be chosen after so many launches."""
        return self.shares[min(launches, len(self.shares)) - 1] or 0.0


def row(
    record: Record, machine: Machine, oracle: Oracle, *, cases: Cases, noise: float | None, is_fast: bool, seed: int
) -> Row:
    """A record beside the oracle of its machine."""
    steps = list(record.best_so_far())
    chosen, own = record.choice_true_throughput or 0.0, record.baseline_true_throughput
    holds = None
    if record.stated_factor is not None and own is not None:
        low, high = record.stated_factor
        holds = low <= chosen / own <= high
    return Row(
        cases=cases,
        noise=noise,
        is_fast=is_fast,
        case=record.case,
        tuner=record.tuner,
        seed=seed,
        choice=shown(record.choice),
        launches=record.launches,
        experiments=record.experiments,
        experiments_to_choice=record.experiments_to_choice,
        ooms=record.ooms,
        cluster_seconds=record.cluster_seconds,
        share=chosen / oracle.throughput,
        baseline_share=(own or 0.0) / oracle.throughput,
        shares=tuple(None if true is None else true / oracle.throughput for _, true in steps),
        seconds=tuple(seconds for seconds, _ in steps),
        exceeds_batch=_exceeds_batch(record, machine),
        error=record.error,
        interval_holds=holds,
        memory_errors=record.memory_errors,
        optimum_ruled_out=shown(oracle.config) in record.ruled_out,
    )


def _exceeds_batch(record: Record, machine: Machine) -> bool:
    most = machine.max_train_batch_size
    batch = record.choice[MICRO_BATCH] * record.choice.get(ACCUMULATION, 1) * machine.facts.ranks
    return most is not None and batch > most
