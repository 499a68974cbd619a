"""What a finished study tells its user to do: how much faster, what to change, and with which file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dsopt.protocol.text import significant
from dsopt.report.cost import money
from dsopt.report.diff import Diff
from dsopt.report.goal import SPEED, doubt_text, keep_text, metric_name, superlative, times_text
from dsopt.report.numbers import number, percent
from dsopt.report.readable import value_text
from dsopt.report.summary import Summary
from dsopt.search.standing import Comparison
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, is_script_flag

_NAMES: Final = {
    "zero_optimization.stage": "ZeRO stage",
    MICRO_BATCH: "micro-batch per GPU",
    ACCUMULATION: "accumulation",
    TRAIN_BATCH: "global batch",
}
_ROUGH: Final = 1.2  # times


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One line of yours → best."""

    what: str
    yours: str
    best: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a study as an instruction.

    Attributes:
        study: its name.
        simulated: what a dry run simulates; None if runs were real.
        headline: how many times as fast, and how sure that is.
        certainty: how likely it is the fastest, in words; empty if there was nothing else.
        rows: the user's configuration against the best; empty if that is the user's own.
        file, command: DeepSpeed's configuration, and the line with which to train.
        is_rough: whether the interval is so wide that a comparison is worth its time.
        doubts, warnings: how many sentences of doubt the summary has, and how many of them are warnings.
    """

    study: str
    simulated: str | None
    headline: str
    certainty: str
    rows: Sequence[AnswerRow]
    file: str
    command: str
    doubts: int
    warnings: int = 0
    is_rough: bool = False

    @property
    def next_commands(self) -> list[tuple[str, str]]:
        """Three commands that lead on from here, each with what it does."""
        first = (f"dsopt diff {self.study}", "what each change is worth")
        if self.is_rough:
            first = (f"dsopt compare {self.study}", "both again, in turn: a narrower interval")
        elif not self.rows:
            first = (f"dsopt report {self.study}", "the result with its evidence, as one file")
        return [
            first,
            (f"dsopt study show {self.study} --why", "every run, why it was chosen, every doubt"),
            ("dsopt dashboard", "the same in a browser"),
        ]

    @property
    def doubts_text(self) -> str:
        """How many warnings and doubts there are, and where to read them; empty without any."""
        if not self.doubts:
            return ""
        counts = ((self.warnings, "warning"), (self.doubts - self.warnings, "doubt"))
        which = " and ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts if count)
        return f"{which} about these figures: dsopt study show {self.study} --why"


def answer_of(summary: Summary, diff: Diff, *, file: str, command: str) -> Answer:
    """The answer of a study that has a confirmed result, with the file and command that were written for it."""
    doubts = summary.doubt_lines()
    return Answer(
        study=summary.study,
        simulated=summary.simulated,
        headline=headline(summary),
        certainty=_certainty(summary),
        rows=_rows(summary, diff),
        file=file,
        command=command,
        doubts=len(doubts),
        warnings=sum(line.startswith("WARNING: ") for line in doubts),
        is_rough=_is_rough(summary.comparison),
    )


def headline(summary: Summary) -> str:
    """The result in one sentence, without names. Only for a study that has one."""
    result = summary.comparison
    assert result is not None
    if not summary.alternatives:
        return summary.alone_text()
    if not summary.changes_anything:
        return keep_text(summary.metric)
    if result.speedup is None:
        return f"Your configuration does not run here; this one does, with {number(result.value)} {summary.unit}."
    times, advice = times_text(summary.metric, result.speedup, "your configuration"), summary.batch_advice
    batch = "" if advice is None else f", with {significant(advice.best / advice.own, 3)} times its global batch"
    is_warned = any(line.startswith("WARNING") for line in summary.unlike_runs)
    warned = " Read the warning before you believe it." if is_warned else ""
    if summary.speed is not None and summary.speed.is_slower:
        warned = f" But it trains fewer samples a second: read the warning.{warned}"
    if result.interval is None:
        return f"{times}{batch}.{warned}"
    low, high = result.interval
    doubt = "" if low > 1 else f" {doubt_text(summary.metric)}"
    return f"{times} (95 % interval {low:.2f} to {high:.2f}){batch}.{doubt}{warned}"


def _is_rough(result: Comparison | None) -> bool:
    return result is not None and result.interval is not None and result.interval[1] > _ROUGH * result.interval[0]


def _certainty(summary: Summary) -> str:
    result = summary.comparison
    if result is None or result.probability is None or result.regret is None:
        return ""
    return (
        f"{percent(result.probability).capitalize()} likely the {superlative(summary.metric)} of those that ran, "
        f"in {result.runs} measured runs; expected loss {100 * result.regret:.1f} %."
    )


def _rows(summary: Summary, diff: Diff) -> list[AnswerRow]:
    result = summary.comparison
    assert result is not None
    if not diff.changes:
        return []
    before = "does not run" if result.baseline is None else f"{number(result.baseline)} {summary.unit}"
    rows = [AnswerRow(what=metric_name(summary.metric), yours=before, best=f"{number(result.value)} {summary.unit}")]
    if (speed := summary.speed) is not None:
        own, best = (f"{number(value)} samples/s" for value in (speed.own, speed.best))
        rows.append(AnswerRow(what=SPEED, yours=own, best=best))
    cost = summary.cost
    if cost is not None and cost.best is not None:
        own = "-" if cost.own is None else money(cost.own)
        rows.append(AnswerRow(what="cost of a million samples", yours=own, best=money(cost.best)))
    changed = {change.key: (change.old, change.new) for change in diff.changes}
    changed |= {
        follower.key: (follower.old, follower.new) for follower in diff.following if follower.key == TRAIN_BATCH
    }
    order = [*(key for key in _NAMES if key in changed), *(key for key in changed if key not in _NAMES)]
    return rows + [
        AnswerRow(what=_name(key), yours=_value(key, changed[key][0]), best=_value(key, changed[key][1]))
        for key in order
    ]


def _name(key: str) -> str:
    return _NAMES.get(key) or key.removeprefix(ZERO)


def _value(key: str, value: object) -> str:
    if value == "" and is_script_flag(key):
        return "given"
    if isinstance(value, dict):
        return str(value.get("device", "given"))
    return value_text(value)
