"""Further runs of what has run: where they are worth their time, and before anything is called faster."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dsopt.protocol.text import significant
from dsopt.search.believed import Believed
from dsopt.search.beside import nodes_to_meet, run_again, run_beside
from dsopt.search.disturbed import DISTURBED
from dsopt.search.forecast import Forecast
from dsopt.search.from_elsewhere import first_from_elsewhere, imported_runs, taken_over_step, why_here
from dsopt.search.history import BASELINE, History
from dsopt.search.payback import least_worth
from dsopt.search.speeds import Shown
from dsopt.search.standing import Standing, standing_of
from dsopt.search.steps import Finish, RunReference, Step, Wait
from dsopt.search.unconfirmed import failed_best, lacks_baseline, may_replace
from dsopt.study.launch_noise import USUAL
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

# The best is launched again, in turn with the user's own, until it is so sure to be the faster, and how much faster.
_SURE: Final = 0.95
_ROUGH: Final = 1.35  # times: wider, the interval of the factor says too little
_MOST_PAIRS: Final = 3
# Of a node whose effect may be so much off, as a logarithm, another configuration tells more.
_UNSURE: Final = 0.05
_LINKS: Final = 2
# Further runs of one configuration say ever less, and what differs between launches is not all chance.
_MOST_RUNS: Final = 8
_PAIR: Final = 2
_COLD: Final = "the first launch of a study may be colder than others, or have had company"
_CONTRADICTS: Final = "its two launches contradict each other"
_ALONE: Final = "its fastest launch is far above two others, which may both have been disturbed"
_SINCE: Final = "launches of what it is compared with have changed since it ran: the machine may have"
_LUCKY: Final = "launches differ by more than usual here, and it has had only one"


def repeat_step(history: History, forecast: Forecast, least: float) -> RunReference | None:
    """Another run of a known configuration, if one is worth at least that; None otherwise."""
    ended = {o.name for o in history.everything if o.state == "measured"}  # what goes on is only believed to have run
    failed = Counter(o.name for o in history.reference if o.round and o.state in ("failed", "infeasible"))
    ended -= {name for name, times in failed.items() if times >= _MOST_PAIRS}
    again = [each for each in forecast.again() if len(each[0].ran_here) < _MOST_RUNS and each[0].name in ended]
    again += imported_runs(history, forecast)
    doubted = disturbed_step(history, forecast, max([least, *(worth for _, worth in again)]))
    if doubted is not None:
        return doubted
    shown, worth = max(again, key=lambda each: each[1], default=(None, 0.0))
    if shown is None or worth < least:
        return None
    another = f"another run gains {significant(100 * worth, 2)} % on average"
    return _another(history, shown, why_here(worth) if shown.is_to_measure else another)


def disturbed_step(history: History, forecast: Forecast, least: float) -> RunReference | None:
    """Another run, worth at least that, of what was launched once and may have been disturbed; None if none is.

    If it was, there is a third. Once such a run was as slow as the first, the models are known to expect too much here,
    and it asks for no other; nor once two have failed.
    """
    asked = {o.name: o.state for o in history.reference if o.why == DISTURBED}
    again = [each for each in forecast.believed.shown if asked.get(each.name) in ("measured", "slow")]
    for each in again:
        is_asked = any((o.name, o.why) == (each.name, _CONTRADICTS) for o in history.reference)
        if each.contradicts_itself and len(each.scores) == _PAIR and max(each.scores) > forecast.best and not is_asked:
            return _another(history, each, _CONTRADICTS)
    failed = [state for state in asked.values() if state in ("failed", "infeasible")]
    as_slow = [each for each in again if each.agrees_with_itself and not each.contradicts_itself]
    if as_slow or len(failed) >= _PAIR:
        return None
    tried = {o.name for o in history.reference if o.round}  # once, also if that fails
    doubted = [each for each in forecast.disturbed() if each[0].name not in tried]
    shown, worth = max(doubted, key=lambda each: each[1], default=(None, 0.0))
    return None if shown is None or worth < least else _another(history, shown, DISTURBED)


def _where_it_tells_more(history: History, believed: Believed, name: str) -> Sequence[str]:
    """The nodes of the best, for what has run on none of them; for the best itself, those of the user's own."""
    best = None if believed.best_shown is None else believed.best_shown.name
    rival = BASELINE if name == best else best
    return () if rival is None else nodes_to_meet(history, name, rival)


def last_step(spec: StudySpec, history: History, forecast: Forecast) -> Step:
    """What is left once every stage is closed: runs that are worth it, then those that make the result sure."""
    believed = forecast.believed
    again = repeat_step(history, forecast, least_worth(spec, history))
    if again is not None:
        return replace(again, on=_where_it_tells_more(history, believed, again.name))
    shown = believed.best_shown if may_replace(history) else None
    index = believed.index_of(BASELINE)
    own = None if index is None else believed.shown[index]
    going = {o.name for o in history.everything if o.state == "running"}
    if going:  # the user's own and the best may run at once, each where the other did
        second = _second(history, believed, shown, own) if shown is not None and BASELINE in going else None
        return second or Wait()
    failed = [o for o in history.reference if o.name == BASELINE and o.round and o.state in ("failed", "infeasible")]
    if shown is None or len(failed) >= _MOST_PAIRS:
        return Finish()
    if failed and lacks_baseline(history):
        return RunReference(name=BASELINE, round=len(failed) + 1, candidate=None, why="it failed when it ran again")
    another = _second(history, believed, shown, own) or disagreeing_step(history, believed, shown, own)
    if another is not None:
        return another
    from_elsewhere = first_from_elsewhere(history, believed)
    if from_elsewhere is not None:
        return from_elsewhere
    standing = standing_of(spec, history)
    link = _across_nodes(spec, history, believed, standing, shown, own)
    if link is not None:
        return link
    if own is None or own is shown:
        return Finish()
    fewer = min((own, shown), key=lambda each: len(each.ran_here))
    unsure = None if standing is None else _unsure(standing, shown.name)
    if unsure is None or len(fewer.ran_here) > _MOST_PAIRS:
        return Finish()
    return _another(history, fewer, unsure, _only_nodes(believed, fewer))


def _unsure(standing: Standing, best: str) -> str | None:
    """Why the best and the user's own run again, in turn; None: it is known well enough how they compare."""
    if standing.chance(best, BASELINE) < _SURE:
        return "it is not sure yet which of the best and your own configuration is faster"
    low, high = standing.ratio(best, BASELINE).interval
    if high > _ROUGH * low:
        return "how much faster the best is than your own configuration is known only roughly"
    return None


def _second(history: History, believed: Believed, best: Shown, own: Shown | None) -> RunReference | None:
    """The user's own configuration again, where the best ran, and the best where the user's own did."""
    only = _only_nodes(believed, best)
    if failed_best(history) and len(best.ran_here) == 1 and best.name != BASELINE:
        return _another(history, best, "what was better failed when it ran again", only)
    taken_over = taken_over_step(history, best)
    if taken_over is not None:
        return taken_over
    again = [o for o in history.reference if o.name == BASELINE and o.round and o.state not in ("failed", "infeasible")]
    has_others = sum(bool(each.ran_here) for each in believed.shown) > 1
    if own is not None and has_others and not again:
        return _another(history, own, _COLD, on=only)
    why = f"it has run on {' and '.join(only)} only"
    if not only or any(o.name == best.name and o.why == why for o in history.reference):
        return None
    return _another(history, best, why, only, sorted(_nodes_of(own).difference(only)) if own is not None else [])


def disagreeing_step(history: History, believed: Believed, best: Shown, own: Shown | None) -> Step | None:
    """Another launch, once, of what has two that cannot both be right, or of a best that has one where they differ.

    One launch of it may have been lucky. Of three, two may have been disturbed: then there is a fourth. Where launches
    of one have changed, so may those of the other. While such a launch goes on, it is waited for.
    """
    both = [one for one in (best, own) if one is not None]
    due = [(one, _CONTRADICTS) for one in both if one.contradicts_itself and len(one.scores) == _PAIR]
    due += [(one, _ALONE) for one in both if one.fastest_is_alone]
    if own is not None and best is not own:
        pairs = ((own, best.settled_at), (best, own.settled_at))
        due += [(one, _SINCE) for one, since in pairs if since is not None and max(one.orders, default=since) < since]
    if own is not None and best is not own and len(best.ran_here) == 1 and believed.launch > USUAL:
        due.append((best, _LUCKY))
    for one, why in due:
        if not any((o.name, o.why) == (one.name, why) for o in history.reference):
            return _another(history, one, why)
    is_going = any(o.state == "running" and o.why in (_CONTRADICTS, _ALONE, _SINCE, _LUCKY) for o in history.reference)
    return Wait() if is_going else None


def _across_nodes(
    spec: StudySpec, history: History, believed: Believed, standing: Standing | None, best: Shown, own: Shown | None
) -> RunReference | None:
    """A run that compares on one node what has run on different ones."""
    least = least_worth(spec, history)
    rivals = [one for one in map(believed.shown.__getitem__, believed.winners) if one is not best and one is not own]
    open_ones = [one for one in rivals if standing and standing.gain(one.name, best.name) >= least]
    own_ones = [] if own is None else [own]
    for other in (*own_ones, *open_ones) if own is not None and own is not best else ():
        beside = run_beside(history, other.name, _point(other), best.name)
        if beside is not None:
            return beside
    return _link(history, believed, (*own_ones, best, *open_ones))


def _link(history: History, believed: Believed, contenders: Sequence[Shown]) -> RunReference | None:
    """A run that tells how fast a node is against the others.

    One configuration that differs there shows an odd node or an odd run; a second one that ran on both sides tells
    which.
    """
    for node in (name for name, effect in believed.nodes.items() if effect.variance > _UNSURE**2):
        why = f"whether {node} is as fast as others is not clear"
        linked = [one.name for one in believed.shown if len(on := _nodes_of(one)) > 1 and node in on]
        for one in contenders if len(linked) < _LINKS else ():
            on = _nodes_of(one)
            if on and one.name not in linked and not any((o.name, o.why) == (one.name, why) for o in history.reference):
                if node in on:
                    return _another(history, one, why, avoid=[node])
                return _another(history, one, why, on=[node])
    return None


def _nodes_of(shown: Shown) -> set[str]:
    """The nodes that runs of a configuration were on."""
    return {node for nodes in shown.ran_here for node in nodes}


def _only_nodes(believed: Believed, shown: Shown) -> Sequence[str]:
    """The nodes that all runs of a configuration were on; none if those are all that the study has."""
    places = {nodes for nodes in shown.ran_here if nodes}
    return next(iter(places)) if len(places) == 1 and believed.speeds.nodes - set(*places) else ()


def _another(
    history: History, shown: Shown, why: str, avoid: Sequence[str] = (), on: Sequence[str] = ()
) -> RunReference:
    return run_again(history, shown.name, _point(shown), why, avoid, on)


def _point(shown: Shown) -> Candidate | None:
    """A configuration as a point of the space; the user's own is none."""
    return None if shown.name == BASELINE else shown.candidate
