"""What was tried in a study, a row each, the best first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dsopt.report.numbers import number
from dsopt.report.readable import outcome_text, readable, readable_name
from dsopt.search.facts import ModelFacts
from dsopt.search.global_batch import global_batch, own_batch
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.sifting import PROFILE
from dsopt.search.standing import standing_of
from dsopt.search.unconfirmed import left_out
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

_ORDER: Final = ("measured", "slow", "running", "infeasible", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration that was tried.

    Attributes:
        name: the canonical one, of folders and rows.
        label: for people.
        stage, micro_batch, gas: where it stands in the space; None if that is not known.
        state: how its run of the search came out, or `running`.
        reason, message: why it was not measured.
        searched: its metric in the search; None of a slow run, which was stopped before it was measured.
        bound: what a slow run could have reached at best, 99 % sure; None if that was not kept.
        searched_percent: half-width of the 95 % interval of the run's mean step time.
        estimate: its metric by all runs together; of the result, the user's own and what was launched more than once.
        estimate_interval: 95 % interval of that, launches included.
        rounds: of how many launches it has a figure.
        unconfirmed: in which further run it failed, and why; None if it did not.
        needed_bytes, device_bytes: of memory, what the fullest rank needed (`ModelFacts.needed_bytes`), and may use.
        batch: global batch, in samples.
        is_best, is_own: the result, or the best so far, and the user's own configuration.
        why: why it was chosen.
        again: of each further run, what it measured, and why it was launched again.
        origin: where its figure is from, if it is no run of this study, in words.
        is_imported: whether DeepSpeed's autotuner measured it, and no run here.
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
    bound: float | None
    searched_percent: float | None
    estimate: float | None
    estimate_interval: tuple[float, float] | None
    rounds: int
    unconfirmed: str | None
    needed_bytes: int | None
    device_bytes: int | None
    batch: int | None
    is_best: bool
    is_own: bool
    why: str | None
    again: Sequence[str]
    origin: str | None
    is_imported: bool = False

    @property
    def value(self) -> float | None:
        """Its metric: by all runs together if there is such a figure, else in the search."""
        return self.searched if self.estimate is None else self.estimate

    @property
    def outcome(self) -> str:
        """Why it was not measured, or its state, in words."""
        return outcome_text(self.state, None if self.state == "running" else self.reason)


def bound_text(row: Row, *, maximize: bool) -> str:
    """What a slow run could have reached at best, as `< 240`; only for one whose bound is known."""
    return f"{'<' if maximize else '>'} {number(row.bound)}"


def rows_of(spec: StudySpec, history: History, best: str | None) -> list[Row]:
    """What was tried, the best first; `best`: the result, if there is one."""
    estimates, facts = _estimated(spec, history, best), history.facts_for(spec)
    own = own_batch(spec, history, facts) if facts is not None else None
    references = [o for o in history.reference if o.round == 0]
    ran_again = {o.name for o in history.reference if o.round and o.state == "measured"}
    failed = {o.name: f"failed in round {o.round}: {o.message}" for o in left_out(history)}
    stopped = {o.name: o for o in history.observations if o.state == "slow"}
    again = {name: [f"its first launch was stopped: {o.message}"] for name, o in stopped.items() if name in ran_again}
    for o in history.reference:
        earliest = history.searched(o.name) if o.round else o
        if earliest is None or o.round > earliest.round or o.name in stopped:
            again.setdefault(o.name, []).append(_again(o, spec.autotuning.unit))
    plain, special = _plain_rows(history, facts), {*estimates, *failed, *again, best}
    rows = []
    for seen in [*references, *history.observations]:
        is_plain = seen.candidate is not None and seen.name not in special
        if is_plain and id(seen) in plain:
            rows.append(plain[id(seen)][1])
            continue
        batch = own
        if facts is not None and seen.candidate is not None:
            batch = global_batch(spec, facts, seen.candidate)
        run = history.measured_here(seen)
        row = _row(run, estimates, best, batch, failed.get(seen.name), again.get(seen.name, ()))
        row = replace(row, why=seen.why) if seen.state == "slow" else row
        rows.append(row if seen.imported is None else _as_imported(row, is_measured=run.imported is None))
        if is_plain:
            plain[id(seen)] = (seen, rows[-1])
    sign = -1 if history.maximize else 1
    standing = standing_of(spec, history) if estimates else None
    first = best if best is not None or standing is None else standing.best

    def order(row: Row) -> tuple[bool, bool, int, float]:
        value = row.bound if row.value is None else row.value
        is_searched = best is not None and row.estimate is None  # before there is a result, few ran again
        return row.name != first, is_searched, _ORDER.index(row.state), sign * value if value is not None else 0.0

    return sorted(rows, key=order)


def _again(o: Observation, unit: str) -> str:
    """A further run in words."""
    percent = f" ±{100 * o.half_width:.1f} %" if o.half_width is not None else ""
    shown = outcome_text(o.state, o.reason) if o.value is None else f"{number(o.value)} {unit}{percent}"
    return f"launched again, round {o.round}: {'; '.join(filter(None, [shown, o.why]))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    """The rows of candidates without an estimate, by the id of what they are of, and the facts they go by.

    Kept with the history: whoever looks again and again has thousands of them, and a few change.
    """

    facts: ModelFacts | None
    rows: dict[int, tuple[Observation, Row]]


def _plain_rows(history: History, facts: ModelFacts | None) -> dict[int, tuple[Observation, Row]]:
    known = history.learnt.get(_Plain)
    if not isinstance(known, _Plain) or known.facts != facts:
        known = _Plain(facts=facts, rows={})
        history.learnt[_Plain] = known
    return known.rows


def _row(
    seen: Observation,
    estimates: dict[str, tuple[float, tuple[float, float], int]],
    best: str | None,
    batch: int | None,
    unconfirmed: str | None,
    again: Sequence[str],
) -> Row:
    value, interval, rounds = estimates.get(seen.name, (None, None, 0))
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
        searched=seen.value,
        bound=seen.value_bound,
        searched_percent=100 * seen.half_width if seen.half_width is not None and seen.value is not None else None,
        estimate=value,
        estimate_interval=interval,
        rounds=rounds,
        unconfirmed=unconfirmed,
        needed_bytes=seen.facts.needed_bytes or None if seen.facts else None,
        device_bytes=seen.facts.device_memory_bytes if seen.facts else None,
        batch=batch,
        is_best=seen.name == best,
        is_own=seen.name == BASELINE,
        why=seen.why,
        again=again,
        origin=f"taken over from study '{seen.taken_over}'" if seen.taken_over else None,
    )


def _own(seen: Observation) -> Candidate | None:
    """The user's own configuration as its run showed it."""
    facts = seen.facts
    return Candidate(stage=facts.zero_stage, micro_batch=facts.micro_batch, gas=facts.gas) if facts else None


def _as_imported(row: Row, *, is_measured: bool) -> Row:
    origin = f"imported from DeepSpeed's autotuner, {'and' if is_measured else 'not'} measured here"
    return replace(row, origin=origin, is_imported=not is_measured)


def _label(seen: Observation, candidate: Candidate | None) -> str:
    label = readable_name(seen.name, seen.candidate)
    return f"{label} ({readable(candidate)})" if seen.name == BASELINE and candidate is not None else label


def _estimated(
    spec: StudySpec, history: History, best: str | None
) -> dict[str, tuple[float, tuple[float, float], int]]:
    """By name: the metric by all runs together, its interval, and of how many launches it has a figure.

    Of what was launched more than once, of what was imported and launched here, and of the result with the user's own.
    """
    launches = Counter(o.name for o in history.everything if o.value is not None and o.imported is None)
    always = {o.name for o in history.observations if o.imported is not None}
    always |= {best, BASELINE} if best is not None else set()
    names = [name for name, count in launches.items() if count > 1 or name in always]
    standing = standing_of(spec, history) if names else None
    if standing is None:
        return {}
    found = {}
    for name in names:
        if name not in standing.names:
            continue
        level = standing.level(name)
        value, (low, high) = level.factor, level.interval
        if not history.maximize:
            value, low, high = 1 / value, 1 / high, 1 / low
        found[name] = (value, (low, high), launches[name])
    return found


def factor_of(best: Row | None, own: Row | None, *, maximize: bool) -> float | None:
    """How many times as good as the user's own configuration the best is: both by all their runs, or by one each.

    None if the best is the user's own, or imported, or one of the two has no figure.
    """
    if best is None or own is None or best.is_own or best.is_imported:
        return None
    both = (best.searched, own.searched) if best.estimate is None else (best.estimate, own.estimate)
    if both[0] is None or both[1] is None:
        return None
    return both[0] / both[1] if maximize else both[1] / both[0]


def best_row(rows: Sequence[Row]) -> Row | None:
    """The best that was measured so far, of rows that are in order: measured here before imported.

    The least-memory profile shows what fits, and is never a result.
    """
    may_win = [row for row in rows if row.name != PROFILE and row.unconfirmed is None]
    measured = [row for row in may_win if row.state == "measured"]  # the best first
    here = [row for row in measured if not row.is_imported]
    if all(row.is_own for row in here) and len(measured) > len(here):
        return next(row for row in measured if row not in here)
    return next((row for row in measured if row.is_best), next(iter(here), None))
