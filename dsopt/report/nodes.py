"""Nodes that are slower than others, in words."""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from dsopt.search.beside import are_apart, are_single, nodes_of
from dsopt.search.history import BASELINE, History
from dsopt.search.nodes import NodeEffect
from dsopt.search.standing import standing_of
from dsopt.study.spec import StudySpec

_SLOWER: Final = 0.05  # as a share of the fastest one's speed
_SURELY: Final = 2.0  # standard deviations


def slow_nodes(spec: StudySpec, history: History) -> list[str]:
    """What is to know of the nodes of a study that are slower than others."""
    several = len({name for o in history.everything for name in o.ran_on}) > 1
    standing = standing_of(spec, history) if several else None
    if standing is None:
        return []
    return [*apart_text(history, [standing.best], BASELINE), *slow_nodes_text(standing.nodes)]


def apart_text(history: History, names: Iterable[str], other: str) -> list[str]:
    """A warning for each of these configurations whose factor against another compares nodes, too."""
    own = "your own configuration" if other == BASELINE else other
    lines = []
    for name in names:
        if are_apart(history, name, other):
            lines.append(
                f"WARNING: {name} ran on {' and '.join(nodes_of(history, name))}, and {own} on "
                f"{' and '.join(nodes_of(history, other))}: the factor holds what differs between these nodes, too."
            )
            if are_single(history, name, other):
                lines[-1] += " Start a worker on one of them, in a study of another --name, to compare them there."
    return lines


def slow_nodes_text(effects: Mapping[str, NodeEffect]) -> list[str]:
    """A sentence for each node that is surely slower than the fastest one, and what dsopt does about it."""
    if not effects:
        return []
    fastest = max(effects, key=lambda name: effects[name].mean)
    best = effects[fastest]
    lines = []
    for name, effect in effects.items():
        behind = best.mean - effect.mean
        surely = behind - _SURELY * math.sqrt(best.variance + effect.variance)
        if surely > -math.log1p(-_SLOWER):
            lines.append(
                f"Node {name} is {-100 * math.expm1(-behind):.0f} % slower than {fastest}. dsopt takes that out of "
                f"what it compares. Look at what else runs on {name}, and at its clocks and links."
            )
    return lines
