"""Nodes that are slower than others, in words."""

import math
from collections.abc import Mapping
from typing import Final

from dsopt.search.nodes import NodeEffect

_SLOWER: Final = 0.05  # as a share of the fastest one's speed
_SURELY: Final = 2.0  # standard deviations


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
