"""Runs that put a configuration where another ran: what differs between two nodes looks like what differs between two
configurations that have no node in common."""

from collections.abc import Sequence
from typing import Final

from dsopt.search.history import BASELINE, History
from dsopt.search.places import here, places_of
from dsopt.search.steps import RunReference
from dsopt.study.space import Candidate

_MOST: Final = 3  # further runs; if they have not met one of those nodes, whoever reads the result is told


def are_apart(history: History, one: str, other: str) -> bool:
    """Whether two configurations were measured on known nodes, each run on some, and never on the same ones."""
    of_one, of_other = _places(history, one), _places(history, other)
    return all(of_one) and all(of_other) and bool(of_one and of_other) and not {*of_one} & {*of_other}


def are_single(history: History, *names: str) -> bool:
    """Whether each measured run of these configurations was on one node."""
    return all(len(nodes) == 1 for name in names for nodes in _places(history, name))


def nodes_of(history: History, name: str) -> list[str]:
    """The nodes that a configuration was measured on."""
    return sorted({node for nodes in _places(history, name) for node in nodes})


def run_beside(history: History, name: str, candidate: Candidate | None, other: str) -> RunReference | None:
    """Another run of a configuration, where `other` ran, if they have no node in common.

    None also of runs over several nodes each: which ones a run gets is not dsopt's to say.
    """
    on = nodes_to_meet(history, name, other)
    why = f"it has not run where {'your own configuration' if other == BASELINE else other} has"
    if not on or sum((o.name, o.why) == (name, why) for o in history.reference) >= _MOST:
        return None
    return run_again(history, name, candidate, why, on=on)


def nodes_to_meet(history: History, name: str, other: str) -> Sequence[str]:
    """The nodes of `other`, if a configuration has run on none of them."""
    if not are_apart(history, name, other) or not are_single(history, name, other):
        return ()
    return nodes_of(history, other)


def run_again(
    history: History,
    name: str,
    candidate: Candidate | None,
    why: str | None,
    avoid: Sequence[str] = (),
    on: Sequence[str] = (),
) -> RunReference:
    """The next run of a configuration that has run; `why` is None of one in rounds."""
    last = max((o.round for o in history.reference if o.name == name), default=0)
    return RunReference(name=name, round=last + 1, candidate=candidate, why=why, avoid=avoid, on=on)


def _places(history: History, name: str) -> Sequence[tuple[str, ...]]:
    """Which nodes each measured run of a configuration in this study was on."""
    return here([places_of(o) for o in history.everything if o.name == name and o.state == "measured"])
