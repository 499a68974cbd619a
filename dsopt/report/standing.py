"""Where a study stands: how far, how good, what goes on now, and what was tried, best first."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dsopt.report.answer import headline
from dsopt.report.cost import money
from dsopt.report.durations import short_duration
from dsopt.report.files import were_scaled
from dsopt.report.first_run import memory_lines
from dsopt.report.left import what_is_left
from dsopt.report.numbers import number
from dsopt.report.readable import readable, readable_name
from dsopt.report.summary import Summary
from dsopt.search.confirm import standing_after
from dsopt.search.global_batch import global_batch, own_batch
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.unconfirmed import failed_finalists
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

_ORDER: Final = ("measured", "slow", "running", "infeasible", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A run that goes on: which, on which node, for how many seconds."""

    name: str
    round: int
    node: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration that was tried.

    Attributes:
        name: the canonical one, of folders and rows.
        label: for people.
        stage, micro_batch, gas: where it stands in the space; None if that is not known.
        state: how its run of the search came out, or `running`.
        reason, message: why it was not measured.
        searched: its metric in the search; of a slow run, until it was stopped.
        searched_percent: half-width of the 95 % interval of the run's mean step time.
        confirmed: its metric in the confirmation; None if it was not in it.
        confirmed_interval: 95 % interval of that, launches included.
        rounds: in how many rounds of the confirmation it was measured.
        peak_bytes, device_bytes: the largest peak of a rank, and what a rank may use.
        batch: global batch, in samples.
        is_best, is_own: the result, and the user's own configuration.
        why: why it was chosen.
        origin: where its figure is from, if it is no run of this study, in words.
        is_imported: whether DeepSpeed's autotuner measured it.
    """

    name: str
    label: str
    stage: int | None
    micro_batch: int | None
    gas: int | None
    state: str
    reason: str | None
    message: str
    searched: float | None
    searched_percent: float | None
    confirmed: float | None
    confirmed_interval: tuple[float, float] | None
    rounds: int
    peak_bytes: int | None
    device_bytes: int | None
    batch: int | None
    is_best: bool
    is_own: bool
    why: str | None
    origin: str | None
    is_imported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a study stands.

    Attributes:
        study, state, metric, unit, maximize: what it is about.
        simulated: what a dry run simulates; None if runs are real.
        good: how good the best is so far, or the result, in a sentence.
        far: how far it is, in words.
        now: what goes on, or what to do to go on, a line each.
        stages: why each closed stage is closed.
        rows: what was tried, best first.
        advice: what else to do.
        doubts: what to know before one believes the result.
    """

    study: str
    state: str
    metric: str
    unit: str
    maximize: bool
    simulated: str | None
    good: str
    far: str
    now: Sequence[str]
    stages: Sequence[tuple[int, str]]
    rows: Sequence[Row]
    advice: Sequence[str]
    doubts: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """All of it as data."""
        return asdict(self)


def standing_of(spec: StudySpec, history: History, summary: Summary, running: Sequence[Now]) -> Standing:
    """Where a study stands; `running` is what goes on now."""
    rows = rows_of(spec, history, summary.comparison.best if summary.comparison else None)
    labels = {row.name: row.label for row in rows}
    return Standing(
        study=spec.name,
        state=summary.state,
        metric=summary.metric,
        unit=summary.unit,
        maximize=summary.maximize,
        simulated=summary.simulated,
        good=_good(summary, rows),
        far=_far(spec, history, summary),
        now=_now(summary, running, labels),
        stages=[(int(row.tuning_space.removeprefix("z")), row.verdict) for row in summary.stages if row.verdict],
        rows=rows,
        advice=[*summary.advice_lines(scaled=were_scaled(spec)), *memory_lines(spec, history)],
        doubts=summary.doubt_lines(),
    )


def rows_of(spec: StudySpec, history: History, best: str | None) -> list[Row]:
    """What was tried, the best first; `best`: the result, if there is one."""
    confirmed, facts = _confirmed(history), history.facts_for(spec)
    own = own_batch(spec, history, facts) if facts is not None else None
    first = [o for o in history.reference if o.round == 0]
    rows = []
    for seen in [*first, *history.observations]:
        batch = own
        if facts is not None and seen.candidate is not None:
            batch = global_batch(spec, facts, seen.candidate)
        rows.append(_row(seen, confirmed, best, batch))
    sign = -1 if history.maximize else 1

    def order(row: Row) -> tuple[bool, int, float]:
        value = row.confirmed if row.confirmed is not None else row.searched
        return row.confirmed is None, _ORDER.index(row.state), sign * value if value is not None else 0.0

    return sorted(rows, key=order)


def _row(
    seen: Observation,
    confirmed: dict[str, tuple[float, tuple[float, float], int]],
    best: str | None,
    batch: int | None,
) -> Row:
    value, interval, rounds = confirmed.get(seen.name, (None, None, 0))
    candidate = seen.candidate or _own(seen)
    return Row(
        name=seen.name,
        label=_label(seen, candidate),
        stage=candidate.stage if candidate else None,
        micro_batch=candidate.micro_batch if candidate else None,
        gas=candidate.gas if candidate else None,
        state=seen.state,
        reason=seen.reason,
        message=seen.message,
        searched=seen.value if seen.value is not None else seen.value_so_far,
        searched_percent=100 * seen.half_width if seen.half_width is not None else None,
        confirmed=value,
        confirmed_interval=interval,
        rounds=rounds,
        peak_bytes=seen.facts.peak_memory_bytes or None if seen.facts else None,
        device_bytes=seen.facts.device_memory_bytes if seen.facts else None,
        batch=batch,
        is_best=seen.name == best,
        is_own=seen.name == BASELINE,
        why=seen.why,
        origin=_origin(seen),
        is_imported=seen.imported is not None,
    )


def _own(seen: Observation) -> Candidate | None:
    """The user's own configuration as its run showed it."""
    facts = seen.facts
    return Candidate(stage=facts.zero_stage, micro_batch=facts.micro_batch, gas=facts.gas) if facts else None


def _origin(seen: Observation) -> str | None:
    if seen.imported is not None:
        return "imported from DeepSpeed's autotuner, not measured here"
    return f"taken over from study '{seen.taken_over}'" if seen.taken_over else None


def _label(seen: Observation, candidate: Candidate | None) -> str:
    label = readable_name(seen.name, seen.candidate)
    return f"{label} ({readable(candidate)})" if seen.name == BASELINE and candidate is not None else label


def _confirmed(history: History) -> dict[str, tuple[float, tuple[float, float], int]]:
    """By name: the metric in the confirmation, its interval, and in how many rounds."""
    standing = standing_after(history, without=failed_finalists(history))
    if standing is None:
        return {}
    found = {}
    for name in standing.names:
        level = standing.level(name)
        value, (low, high) = level.factor, level.interval
        if not history.maximize:
            value, low, high = 1 / value, 1 / high, 1 / low
        rounds = sum(o.name == name and o.round > 0 and o.value is not None for o in history.reference)
        found[name] = (value, (low, high), rounds)
    return found


def _good(summary: Summary, rows: Sequence[Row]) -> str:
    if summary.comparison is not None:
        return headline(summary)
    if summary.unconfirmed is not None:
        failed = len(summary.unconfirmed.failures)
        runs = "1 run" if failed == 1 else f"{failed} runs"
        return f"Not confirmed: {runs} failed when the best of the search were measured again."
    if summary.state == "finished":
        return summary.sentence().partition("\n")[0]
    own = next((row for row in rows if row.is_own), None)
    best = best_row(rows)
    if best is None:
        return "Nothing was measured yet."
    if best.is_own:
        if any(row.searched is not None and not row.is_own for row in rows):
            return "Your own configuration is the fastest so far."
        return "Nothing but your own configuration was measured yet."
    value: float | None
    if best.confirmed is not None:
        value, own_value, how = best.confirmed, own.confirmed if own else None, "the confirmation goes on"
    else:
        value, own_value = best.searched, own.searched if own else None
        how = best.origin if best.origin and best.is_imported else "search, not confirmed"
    told = f"Best so far: {best.label}, {number(value)} {summary.unit}"
    if own_value is None or value is None or best.is_imported:
        return f"{told} ({how})."
    factor = value / own_value if summary.maximize else own_value / value
    return f"{told}, {factor:.2f} times as fast as yours ({how})."


def best_row(rows: Sequence[Row]) -> Row | None:
    """The best that was measured so far: confirmed before searched, measured here before imported."""
    measured = [row for row in rows if row.state == "measured"]  # the best first
    here = [row for row in measured if not row.is_imported]
    if all(row.is_own for row in here) and len(measured) > len(here):
        return next(row for row in measured if row not in here)
    return next((row for row in measured if row.is_best), next(iter(here), None))


def _far(spec: StudySpec, history: History, summary: Summary) -> str:
    over = [o for o in history.everything if o.is_spent and o.state != "running"]
    rounds = max((o.round for o in history.reference), default=0)
    parts = [f"{len(over)} run{'s' * (len(over) != 1)}"]
    if summary.state == "confirming" or rounds:
        parts.append(f"{rounds} round{'s' * (rounds != 1)} of confirmation")
    if summary.worked_seconds is not None:
        parts.append(f"{short_duration(summary.worked_seconds)} of runs")
    if summary.cost is not None and summary.simulated is None:
        parts.append(f"cost {money(summary.cost.study)}")
    left = what_is_left(spec, history) if summary.state not in ("finished", "stopped") else None
    return "; ".join([", ".join(parts), *([left.text()] if left else [])])


def _now(summary: Summary, running: Sequence[Now], labels: dict[str, str]) -> list[str]:
    name = summary.study
    if summary.state == "finished":
        again = summary.unconfirmed is not None
        return [f"Measure again with: dsopt study resume {name}, then dsopt worker {name}"] if again else []
    if running:
        return running_lines(running, labels)
    if summary.state == "stopped":
        return [f"Stopped{f': {summary.note}' if summary.note else ''}. Go on with: dsopt study resume {name}"]
    return [f"No run goes on. Go on with: dsopt worker {name}"]


def running_lines(running: Sequence[Now], labels: Mapping[str, str]) -> list[str]:
    """What goes on, a line each; `labels` for people, by canonical name."""
    return [
        f"Running: {labels.get(run.name, readable_name(run.name, None))}"
        f"{f' · round {run.round}' if run.round else ''}, on {run.node}, for {short_duration(run.seconds)}"
        for run in running
    ]
