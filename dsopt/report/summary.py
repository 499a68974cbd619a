"""The result of a study in words and numbers, for people and as data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from dsopt.report.batch_size import BatchAdvice
from dsopt.report.cost import Cost
from dsopt.report.doubts import doubts_text
from dsopt.report.durations import duration_text
from dsopt.report.failures import alone_text, left_out_lines, not_confirmed_text, outside_text
from dsopt.report.goal import TrainingSpeed, baseline_text, superlative
from dsopt.report.headroom import Headroom
from dsopt.report.model import model_line
from dsopt.report.named import names_in
from dsopt.report.numbers import number, percent
from dsopt.report.stage_rows import StageRow, stages_table
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE
from dsopt.search.run_quality import RunQuality
from dsopt.search.standing import Comparison
from dsopt.search.unconfirmed import Unconfirmed

_OF_TABLE: Final = "Figures in the table are single runs; the result below is an estimate by all runs together."


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a study.

    Attributes:
        study, state, metric, unit, maximize: what it is about.
        simulated: what a dry run simulates; None if runs were real.
        baseline: the baseline's metric in the search; None if it does not run.
        baseline_message: why the baseline does not run.
        model: what the runs showed of it.
        stages: one row per ZeRO stage.
        imported: names of the candidates of which there are imported figures alone.
        taken_over: names of the runs taken over, by the study they are from.
        comparison: the result; None while there is none.
        unconfirmed: what the search found, if that failed when it ran again.
        alternatives: whether any configuration but the user's own was measured.
        only: how to try more, if the user's own configuration is the study's only candidate; else None.
        crashed: failed runs of the search, as name and message.
        left_out: what failed when it ran again, as name, round and message.
        foreign: trials in Optuna's studies that are not the study's own, in words.
        doubts: runs whose numbers are not as good as requested.
        unlike_runs: warnings of what makes figures those of different things (`report/unlike_runs.py`).
        checkpoints: warnings, if the user's cannot be loaded with the best, or the best saves other ones.
        slow_nodes: what is to know of nodes that are slower than others, and of figures from elsewhere.
        fixed_sizes: why no other batch sizes were tried, if the script has its own; else empty.
        outside: what looks like checkpoints and appeared outside the runs' folders while they ran.
        headroom: of the best on its devices, if it is known.
        samples: what is to know of the samples that the best was measured on, if they differ from the baseline's.
        batch_advice: what to do with the learning rate, if the best trains with another global batch.
        cost: of samples and of the study, if the user gave a price.
        duration_seconds: from creation to the end; None before.
        worked_seconds: of these, those during which at least one run ran.
        labels: what people read for the names above.
        faults: what was not measured for a fault of the machine.
        first_values: what the baseline has of the configuration's lists.
        unknown_batch: what to know of the user's own global batch, if nothing tells it.
        speed: how fast the best trains, where that is not the metric.
    """

    study: str
    state: str
    metric: str
    unit: str
    maximize: bool
    simulated: str | None
    note: str | None
    baseline: float | None
    baseline_message: str
    model: ModelFacts | None
    stages: Sequence[StageRow]
    imported: Sequence[str]
    taken_over: Mapping[str, Sequence[str]]
    comparison: Comparison | None
    unconfirmed: Unconfirmed | None
    alternatives: bool
    only: str | None
    crashed: Sequence[tuple[str, str]]
    left_out: Sequence[tuple[str, int, str]]
    foreign: Sequence[str]
    doubts: Sequence[RunQuality]
    unlike_runs: Sequence[str]
    slow_nodes: Sequence[str]
    fixed_sizes: str
    outside: Sequence[str]
    cost: Cost | None
    duration_seconds: float | None
    worked_seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    faults: Sequence[str] = ()
    first_values: str = ""
    unknown_batch: str | None = None
    speed: TrainingSpeed | None = None
    headroom: Headroom | None = None
    samples: str | None = None
    batch_advice: BatchAdvice | None = None
    checkpoints: Sequence[str] = ()

    @property
    def experiments(self) -> int:
        """How many configurations were tried, at all stages."""
        return sum(row.num_experiments for row in self.stages)

    def to_json(self) -> dict[str, Any]:
        """The summary as data."""
        return asdict(self) | {"num_experiments": self.experiments, "sentence": self.sentence()}

    @property
    def names(self) -> set[str]:
        """The canonical names of all configurations in it."""
        listed = [self.imported, *self.taken_over.values(), [names_in(q.name) for q in self.doubts]]
        listed += [[name for name, *_ in runs] for runs in (self.crashed, self.left_out)]
        listed += [[self.comparison.best]] if self.comparison is not None else []
        failed = self.unconfirmed
        listed += [[failed.best, *(name for name, *_ in failed.failures)]] if failed is not None else []
        return {name for names in listed for name in names}

    @property
    def changes_anything(self) -> bool:
        """Whether the best is another configuration than the user's own."""
        return self.comparison is not None and self.comparison.best != BASELINE

    def label(self, run: str) -> str:
        """What people read for the name of a configuration, or for `NAME (round 2)` of a run of it."""
        name = names_in(run)
        return self.labels.get(name, name) + run.removeprefix(name)

    def alone_text(self) -> str:
        """That only the user's own configuration was measured, and why."""
        crashed = [(self.label(name), message) for name, message in self.crashed]
        return alone_text(crashed, only=self.only, is_refused=bool(self.fixed_sizes))

    def advice_lines(self, *, scaled: bool = False) -> list[str]:
        """What to know and do before using the result; `scaled`: its learning rate already follows the batch."""
        told = self.batch_advice.text(applied=scaled) if self.batch_advice else self.unknown_batch if scaled else None
        advice = [told] if told else []
        sizes = [f"Not all sizes could be tried: {self.fixed_sizes}"] if self.fixed_sizes else []
        return [*(self.speed.warnings() if self.speed else ()), *self.unlike_runs, *self.checkpoints, *advice, *sizes]

    def doubt_lines(self) -> list[str]:
        """What a reader should know before they believe the result, a sentence or two each."""
        lines = left_out_lines([(self.label(name), round_, why) for name, round_, why in self.left_out])
        if self.headroom is not None and self.headroom.is_little:
            lines.append(self.headroom.text())
        lines += [text for text in (self.unknown_batch, self.samples) if text]
        lines += doubts_text([replace(q, name=self.label(q.name)) for q in self.doubts])
        lines += self.slow_nodes
        lines += [f"WARNING: {text}" for text in (*self.foreign, *self.faults)]
        if self.outside:
            lines.append(outside_text(self.outside))
        return lines

    def sentence(self) -> str:
        """The result in one sentence."""
        return self._result() if self.simulated is None else f"Simulated: {self._result()}"

    def _result(self) -> str:
        result = self.comparison
        if self.unconfirmed is not None:
            found = self.unconfirmed
            failures = [(self.label(name), round_, message) for name, round_, message in found.failures]
            found = replace(found, best=self.label(found.best), failures=failures)
            return not_confirmed_text(found, self.unit, self.study)
        if result is None:
            return (
                "Nothing has been confirmed yet." if self.state != "finished" else "No configuration could be measured."
            )
        if result.best == BASELINE:
            if not self.alternatives:
                return self.alone_text()
            return f"Your own configuration is the {superlative(self.metric)} found: keep it."
        value = f"{self.label(result.best)}: {number(result.value)} {self.unit}"
        batch = f" {self.batch_advice.short()}" if self.batch_advice is not None else ""
        if result.speedup is None:
            return f"{value}. No speed-up can be given, because your configuration does not run.{batch}"
        return f"{value}, {baseline_text(self.metric, result.speedup, result.interval)}{batch}"

    def text(self, *, scaled: bool = False) -> str:
        """The whole summary as text: the documented table, the result, and what to doubt.

        `scaled` says that the learning rate in the result files already follows the batch.
        """
        lines = [stages_table(self.stages, maximize=self.maximize), ""]
        lines += [_OF_TABLE, ""] if self.comparison is not None and self.comparison.runs else []
        if self.simulated is not None:
            lines += [f"This is a dry run: {self.simulated}. Nothing was trained, and no figure is measured.", ""]
        if self.duration_seconds is not None:
            worked = self.duration_seconds if self.worked_seconds is None else self.worked_seconds
            duration = duration_text(worked, self.duration_seconds)
            lines += [f"Tuning completed in {duration}. Total number of experiments: {self.experiments}.", ""]
        own = f"Baseline (your configuration{f', with {self.first_values}' if self.first_values else ''})"
        if self.baseline is not None:
            lines.append(f"{own}: {number(self.baseline)} {self.unit} when first measured.")
        elif self.baseline_message:
            lines.append(f"{own} does not run: {self.baseline_message}")
        if self.model is not None:
            lines.append(f"Model: {model_line(self.model)}.")
        lines += [f"ZeRO {row.tuning_space.removeprefix('z')}: {row.verdict}." for row in self.stages if row.verdict]
        if self.imported:
            lines.append(
                f"Imported from DeepSpeed's autotuner, not measured here: {', '.join(map(self.label, self.imported))}. "
                "Its figures, from a few steps without data loading, only steered the search."
            )
        for source, names in self.taken_over.items():
            lines.append(f"Taken over from study '{source}', which ran the same: {', '.join(map(self.label, names))}.")
        lines += ["", self.sentence()]
        if self.comparison is not None and self.comparison.runs:
            lines += [*self._basis(self.comparison), *self._certainty()]
        if self.headroom is not None and not self.headroom.is_little:
            lines.append(self.headroom.text())
        lines += [*self.advice_lines(scaled=scaled), *self.doubt_lines()]
        if self.note:
            lines.append(f"Stopped: {self.note}")
        return "\n".join(lines)

    def _basis(self, result: Comparison) -> list[str]:
        """What the result is based on, and what it leaves out."""
        runs = "1 measured run" if result.runs == 1 else f"{result.runs} measured runs"
        if result.baseline is None:
            return [f"Based on {runs} and what they have in common; your configuration does not run."]
        return [
            f"Based on {runs} and what they have in common, by which your configuration has {number(result.baseline)} "
            f"{self.unit}; the interval includes launch-to-launch variation."
        ]

    def _certainty(self) -> list[str]:
        """How likely the best is to be it, and the expected loss from choosing it."""
        result = self.comparison
        if result is None or result.probability is None or result.regret is None:
            return []
        return [
            f"It is {percent(result.probability)} likely to be the {superlative(self.metric)} of those that ran; "
            f"the expected loss from choosing it is {100 * result.regret:.1f} %."
        ]
