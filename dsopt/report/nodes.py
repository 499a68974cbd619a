"""Nodes that are slower than others, and figures from elsewhere that differ from those of the study, in words."""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from dsopt.search.beside import are_apart, are_single, nodes_of
from dsopt.search.history import BASELINE, History
from dsopt.search.nodes import NodeEffect
from dsopt.search.places import source_of
from dsopt.search.standing import standing_of
from dsopt.study.spec import StudySpec

_SLOWER: Final = 0.05  # as a share of the fastest one's speed
_SURELY: Final = 2.0  # standard deviations


def slow_nodes(spec: StudySpec, history: History) -> list[str]:
    """What is to know of nodes of a study that are slower than others, and of figures from elsewhere."""
    several = any(o.ran_on or o.imported for o in history.everything)
    standing = standing_of(spec, history) if several else None
    if standing is None:
        return []
    apart = apart_text(history, [standing.best], BASELINE)
    return [*apart, *slow_nodes_text(standing.nodes), *elsewhere_text(standing.elsewhere)]


def elsewhere_text(effects: Mapping[str, NodeEffect]) -> list[str]:
    """A sentence for each source of figures that surely differ from what the same would show here."""
    lines: dict[str, str] = {}
    for place, effect in effects.items():
        if abs(effect.mean) - _SURELY * math.sqrt(effect.variance) > -math.log1p(-_SLOWER):
            how = f"{100 * abs(math.expm1(effect.mean)):.0f} % {'better' if effect.mean > 0 else 'worse'}"
            source = source_of(place)
            text = f"The figures {source} are about {how} than the same runs are here. dsopt takes that out of what "
            lines.setdefault(source, f"{text}it compares.")
    return [*lines.values()]


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
