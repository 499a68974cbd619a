"""The table of a comparison: each configuration with its figure, or with the reason for having none."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsopt.protocol.text import significant
from dsopt.report.aligned import markdown
from dsopt.report.doubts import doubts_text, faults_of_machine, qualities_of
from dsopt.report.dry_run import simulated
from dsopt.report.goal import superlative
from dsopt.report.nodes import apart_text, slow_nodes_text
from dsopt.report.numbers import percent
from dsopt.report.unlike_runs import unlike_runs
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.standing import Ratio, Standing, standing_of
from dsopt.study.comparison import VANILLA, compared_run, rounds_of
from dsopt.study.spec import StudySpec

YOURS = "yours"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One configuration.

    Attributes:
        name: what the user calls it; `yours` is the user's own.
        with_deepspeed: whether DeepSpeed trains.
        value: its metric over all rounds; None if it does not run, or has not run yet.
        interval: its 95 % interval, including differences between launches.
        factor: how many times as good as the reference it is.
        runs: launches behind it.
        zero_stage, micro_batch, gas, ranks, dtype: what it ran with.
        reason: why it has no figure, or why it was not launched again; None if all its launches ran.
    """

    name: str
    with_deepspeed: bool
    value: float | None = None
    interval: tuple[float, float] | None = None
    factor: Ratio | None = None
    runs: int = 0
    zero_stage: int | None = None
    micro_batch: int | None = None
    gas: int | None = None
    ranks: int | None = None
    dtype: str | None = None
    reason: str | None = None

    @property
    def sizes(self) -> str:
        """ZeRO stage and micro-batch size as DeepSpeed's tutorial writes them."""
        stage = f"z = {self.zero_stage}, " if self.with_deepspeed else ""
        return f"({stage}mbs = {self.micro_batch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTable:
    """The result of a comparison.

    Attributes:
        study, state, metric, unit: what it is about.
        reference: name of the row that factors are relative to: yours, or the first that runs; None if none does.
        rounds: launches of each configuration that runs.
        rows: in the given order, after the vanilla run and yours.
        fastest: name of the best row of which no launch failed; None if there is none.
        probability: that it is the best of those.
        simulated: what a dry run simulates; None if runs are real.
        nodes: what is to know of scripts that changed, launches that contradict each other, and nodes.
    """

    study: str
    state: str
    metric: str
    unit: str
    reference: str | None
    rounds: int
    rows: Sequence[ComparedRow]
    fastest: str | None
    probability: float | None
    simulated: str | None = None
    nodes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """The table as data."""
        return asdict(self)

    def text(self) -> str:
        """The table, the row of DeepSpeed's documents, what fails, and what the figures are based on."""
        lines = [markdown(self.header, self.cells, [False] * 2 + [True] * 8), ""]
        if self.simulated is not None:
            lines += [f"This is a dry run: {self.simulated}. Nothing was trained, and no figure is measured.", ""]
        if self.measured:
            names = ["", *(row.name for row in self.rows)]
            documented = markdown(names, [self._as_documented()], [False] * len(names))
            lines += ["As in DeepSpeed's documents:", "", documented, ""]
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """What fails, which is the best, and what the figures are based on, a line each."""
        measured = self.measured
        lines = [f"{row.name}: {row.reason}" for row in self.rows if row.reason is not None]
        if self.state != "finished":
            lines.append("Not all rounds have run yet.")
        if not measured:
            return [*lines, "No configuration could be measured."]
        if self.fastest is not None and self.probability is not None and len(self.whole) > 1:
            lines.append(f"{self.fastest} is {percent(self.probability)} likely to be the {superlative(self.metric)}.")
        launches = sum(row.runs for row in measured)
        lines.append(
            f"Based on {launches} launches, alternating all configurations that run in each of {self.rounds} rounds. "
            "The 95 % intervals include launch-to-launch variation."
        )
        lines += self.nodes
        if self.reference != YOURS:
            lines.append(f"Your own configuration does not run, so factors are relative to {self.reference}.")
        return lines

    @property
    def measured(self) -> list[ComparedRow]:
        """Those with a figure."""
        return [row for row in self.rows if row.value is not None]

    @property
    def whole(self) -> list[ComparedRow]:
        """Those that ran each time."""
        return [row for row in self.measured if row.reason is None]

    @property
    def header(self) -> list[str]:
        """What each column has."""
        factor = f"times {self.reference or YOURS}"
        return ["configuration", "DeepSpeed", self.unit, "95 % interval", factor, "95 % interval",
                "micro-batch", "accumulation", "ranks", "precision"]  # fmt: skip

    @property
    def cells(self) -> list[list[str]]:
        """The rows, cell by cell."""
        return [self._cells(row) for row in self.rows]

    def _cells(self, row: ComparedRow) -> list[str]:
        deepspeed = "no" if not row.with_deepspeed else "yes" if row.zero_stage is None else f"ZeRO {row.zero_stage}"
        if row.value is None or row.interval is None:
            return [row.name, deepspeed, "does not run" if row.reason else "not run yet", *[""] * 7]
        factor = row.factor if row.name != self.reference else None
        return [
            row.name,
            deepspeed,
            significant(row.value),
            "–".join(significant(bound) for bound in row.interval),
            "1" if row.name == self.reference else f"{factor.factor:.2f}" if factor else "",
            "{:.2f}–{:.2f}".format(*factor.interval) if factor else "",
            *(str(size) for size in (row.micro_batch, row.gas, row.ranks, row.dtype)),
        ]

    def _as_documented(self) -> list[str]:
        cells = [
            f"{significant(row.value)} {row.sizes}" if row.value is not None else "does not run" for row in self.rows
        ]
        return [f"{self.study} ({self.unit})", *cells]


def comparison_table(spec: StudySpec, history: History, state: str) -> ComparisonTable:
    """The table of a comparison so far."""
    standing = standing_of(spec, history)
    names = [run.name for run in spec.compare]
    names.insert(1 if VANILLA in names[:1] else 0, BASELINE)
    measured = [name for name in names if standing is not None and name in standing.names]
    reference = BASELINE if BASELINE in measured else measured[0] if measured else None
    rows = {name: _row(spec, history, standing, name, reference) for name in names}
    whole = [name for name, row in rows.items() if row.reason is None]  # what fails sometimes is no choice
    choice = standing.among(whole) if standing is not None else None
    return ComparisonTable(
        study=spec.name,
        state=state,
        metric=spec.autotuning.metric,
        unit=spec.autotuning.unit,
        reference=_shown(reference),
        rounds=rounds_of(spec),
        rows=[*rows.values()],
        fastest=_shown(choice.best) if choice is not None else None,
        probability=choice.certainty()[0][choice.best] if choice is not None else None,
        simulated=simulated(spec),
        nodes=_doubts(spec, history, standing, reference),
    )


def _doubts(spec: StudySpec, history: History, standing: Standing | None, reference: str | None) -> list[str]:
    doubted = doubts_text([replace(quality, name=_shown(quality.name) or "") for quality in qualities_of(history)])
    faults = [f"WARNING: {text}" for text in faults_of_machine(history)]
    lines = [*faults, *unlike_runs(spec, history), *doubted]
    if standing is None or reference is None:
        return lines
    others = [name for name in standing.names if name != reference]
    return [*lines, *apart_text(history, others, reference), *slow_nodes_text(standing.nodes)]


def _row(spec: StudySpec, history: History, standing: Standing | None, name: str, reference: str | None) -> ComparedRow:
    run = compared_run(spec, name)
    with_deepspeed = run is None or run.ds_config is not None
    found = [o for o in history.reference if o.name == name]
    failed = next((o for o in found if o.state not in ("measured", "running")), None)
    reason = _why(failed, with_deepspeed=with_deepspeed) if failed is not None else None
    facts: ModelFacts | None = next((o.facts for o in found if o.state == "measured"), None)
    row = ComparedRow(name=_shown(name) or name, with_deepspeed=with_deepspeed, reason=reason)
    if standing is None or reference is None or facts is None or name not in standing.names:
        return row
    level = standing.level(name)
    low, high = level.interval
    return ComparedRow(
        name=row.name,
        with_deepspeed=with_deepspeed,
        value=level.factor if history.maximize else 1 / level.factor,
        interval=(low, high) if history.maximize else (1 / high, 1 / low),
        factor=standing.ratio(name, reference),
        runs=sum(o.state == "measured" for o in found),
        zero_stage=facts.zero_stage if with_deepspeed else None,
        micro_batch=facts.micro_batch,
        gas=facts.gas,
        ranks=facts.world_size,
        dtype=facts.dtype,
        reason=f"not launched again after round {failed.round}: {reason}" if failed is not None else None,
    )


def _why(failed: Observation, *, with_deepspeed: bool) -> str:
    """Why a configuration has no figure, in words."""
    if failed.reason == "oom":
        return f"out of memory: {failed.message}"
    return f"{'does not run' if with_deepspeed else 'does not run without DeepSpeed'}: {failed.message}"


def _shown(name: str | None) -> str | None:
    return YOURS if name == BASELINE else name
