"""First runs here of what was measured elsewhere: where they are worth their time, and one of each source at least."""

from collections.abc import Callable
from typing import Final

from dsopt.protocol.text import significant
from dsopt.search.believed import Believed
from dsopt.search.beside import run_again
from dsopt.search.crashes import common_crashes
from dsopt.search.forecast import Forecast
from dsopt.search.history import BASELINE, History
from dsopt.search.places import source_of
from dsopt.search.ruled_out import ruled_out
from dsopt.search.speeds import Shown
from dsopt.search.steps import RunReference

_TAKEN_OVER: Final = "it was taken over, and has not run in this study yet"
_TRIES: Final = 2  # of each source, if its first run here fails


def imported_step(history: History, forecast: Forecast, least: float) -> RunReference | None:
    """The first run here, worth at least that, of what only another tuner has measured; None if none is."""
    shown, worth = max(imported_runs(history, forecast), key=lambda each: each[1], default=(None, 0.0))
    if shown is None or worth < least:
        return None
    return run_again(history, shown.name, shown.candidate, why_here(worth))


def imported_runs(history: History, forecast: Forecast) -> list[tuple[Shown, float]]:
    """What only another tuner has measured and may run here, with what a first run adds on average, by its cost."""
    found = forecast.imported()
    if not found:
        return []
    may_run = _may_run(history, forecast.believed)
    return [each for each in found if may_run(each[0])]


def _may_run(history: History, believed: Believed) -> Callable[[Shown], bool]:
    """Whether what was measured elsewhere may run here: crashes rule it out only at stages at which they were met."""
    crashes, out = common_crashes(believed.spec, history), ruled_out(believed.spec, history, believed.facts)

    def may_run(shown: Shown) -> bool:
        at = shown.candidate
        is_out = any(at.stage in crash.met_at and crash.meets(at) for crash in crashes)
        return shown.name == BASELINE or (out.allow(at) and not is_out)

    return may_run


def why_here(worth: float) -> str:
    """Why something runs here that was only measured elsewhere."""
    return f"a run here gains {significant(100 * worth, 2)} % on average"


def taken_over_step(history: History, best: Shown) -> RunReference | None:
    """The first run here of the best, if only another study has measured it; it is asked for once."""
    tried = (o for o in history.everything if o.name == best.name and o.is_spent)
    if best.name == BASELINE or any(o.state in ("measured", "running") or o.why == _TAKEN_OVER for o in tried):
        return None
    return run_again(history, best.name, best.candidate, _TAKEN_OVER)


def first_from_elsewhere(history: History, believed: Believed) -> RunReference | None:
    """The best of what was measured elsewhere, if nothing from there has run here.

    Figures from elsewhere may all be too low or too high. One run tells by how much; without it, what is best there
    may be called slower for what differs between machines.
    """
    tried, means = {o.name for o in history.reference if o.round}, believed.scores.mean
    has_run_here = any(one.ran_here for one in believed.shown)
    for source in dict.fromkeys(map(source_of, believed.elsewhere)) if has_run_here else ():
        why = f"nothing that was {source} has run here"
        of_it = [(one, mean) for one, mean in zip(believed.shown, means, strict=True) if source in one.sources]
        asked = [o.state for o in history.reference if o.why == why]
        if len(asked) >= _TRIES or "running" in asked or any(one.ran_here for one, _ in of_it):
            continue
        may_run = _may_run(history, believed)
        left = [each for each in of_it if each[0].name not in tried and may_run(each[0])]
        if left:
            best, _ = max(left, key=lambda each: each[1])
            return run_again(history, best.name, None if best.name == BASELINE else best.candidate, why)
    return None
