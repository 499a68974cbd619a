"""What a tuner did on a machine: every run it asked for, in order, and what it chose in the end."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.search.machine import DsConfig, Machine, concrete

Outcome = Literal["measured", "oom", "slow", "failed"]
Phase = Literal["baseline", "profile", "search", "confirm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One launch.

    Attributes:
        config: what was run.
        phase: what for; `profile` learns facts and measures nothing.
        outcome: `slow` was stopped because it could not win, and has a value; `failed` and `oom` have none.
        value: samples per second as the tuner saw it, or None.
        cluster_seconds: what the launch cost, from asking for it until the next could be asked for.
        true_throughput: samples per second in the long run; None when it runs out of memory.
    """

    config: DsConfig
    phase: Phase
    outcome: Outcome
    value: float | None
    cluster_seconds: float
    true_throughput: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that a tuner did on one machine.

    Attributes:
        case: name of the machine.
        tuner: name of the tuner.
        tried: its launches, in order.
        choice: the configuration it ended with; the user's own where it found none.
        choice_true_throughput: of the choice; None when it runs out of memory.
        baseline_true_throughput: of the user's own configuration; None when it runs out of memory.
        error: what the tuner raised instead of an answer, or None.
        stated_factor: 95 % interval of choice ÷ baseline, where the tuner states one.
        memory_errors: relative errors of predicted peak memory, for runs after the third, where the tuner predicts.
        ruled_out: configurations held to be infeasible without a run, as `shown` names them, where the tuner tells.
    """

    case: str
    tuner: str
    tried: tuple[Tried, ...]
    choice: DsConfig
    choice_true_throughput: float | None
    baseline_true_throughput: float | None
    error: str | None = None
    stated_factor: tuple[float, float] | None = None
    memory_errors: tuple[float, ...] = ()
    ruled_out: frozenset[str] = field(default_factory=frozenset)

    @property
    def launches(self) -> int:
        """Everything that was launched: search, baseline, profile and confirmation."""
        return len(self.tried)

    @property
    def experiments(self) -> int:
        """Launches of the search alone; a run that only learns facts counts, since nothing is searched without it."""
        return sum(_is_experiment(t) for t in self.tried)

    @property
    def experiments_to_choice(self) -> int:
        """Experiments until the final choice had been measured once; all of them where it never was."""
        chosen = _key(self.choice)
        for number, tried in enumerate(self.tried, start=1):
            if tried.value is not None and _key(tried.config) == chosen:
                return sum(_is_experiment(t) for t in self.tried[:number])
        return self.experiments

    @property
    def cluster_seconds(self) -> float:
        """Wall clock of the cluster until the final answer."""
        return sum(t.cluster_seconds for t in self.tried)

    @property
    def ooms(self) -> int:
        """Launches that ran out of memory."""
        return sum(t.outcome == "oom" for t in self.tried)

    def best_so_far(self) -> Iterator[tuple[float, float | None]]:
        """After each launch: cluster seconds, and true throughput of what the tuner would choose then.

        That is the best by its own figures, not by the truth; until there is one, the user's own configuration (None
        where that does not run). After the last launch it is the choice.
        """
        seconds, best_value, best_true = 0.0, 0.0, self.baseline_true_throughput
        for tried in self.tried[:-1]:
            seconds += tried.cluster_seconds
            if tried.value is not None and tried.value > best_value:
                best_value, best_true = tried.value, tried.true_throughput
            yield seconds, best_true
        yield self.cluster_seconds, self.choice_true_throughput


class Journal:
    """Keeps a tuner's record while it tunes."""

    def __init__(self, machine: Machine, tuner: str) -> None:
        self._machine = machine
        self._tuner = tuner
        self._tried: list[Tried] = []

    def add(
        self, config: DsConfig, phase: Phase, outcome: Outcome, value: float | None, cluster_seconds: float
    ) -> None:
        """One launch that has ended."""
        tried = Tried(
            config=concrete(config),
            phase=phase,
            outcome=outcome,
            value=value,
            cluster_seconds=cluster_seconds,
            true_throughput=self._machine.true_throughput(concrete(config)),
        )
        self._tried.append(tried)

    @property
    def tried(self) -> tuple[Tried, ...]:
        return tuple(self._tried)

    def close(self, choice: DsConfig | None, **stated: Any) -> Record:  # noqa: ANN401 - fields of a record
        """The record, with what the tuner chose (None: nothing, so the user's own) and what else it stated."""
        chosen = concrete(choice if choice is not None else self._machine.baseline)
        return Record(
            case=self._machine.name,
            tuner=self._tuner,
            tried=self.tried,
            choice=chosen,
            choice_true_throughput=self._machine.true_throughput(chosen),
            baseline_true_throughput=self._machine.true_throughput(concrete(self._machine.baseline)),
            **stated,
        )


def _is_experiment(tried: Tried) -> bool:
    return tried.phase in ("search", "profile")


def _key(config: DsConfig) -> str:
    return json.dumps(concrete(config), sort_keys=True)
