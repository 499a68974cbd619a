"""Launches of one configuration that differ by far more than launches do, in words."""

import math
from collections.abc import Sequence
from typing import Final

from dsopt.protocol.text import significant
from dsopt.report.named import labels
from dsopt.report.numbers import number
from dsopt.report.samples import sample_elements
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.odd_runs import differ_oddly
from dsopt.search.places import places_of

_ALIKE: Final = 1.2  # times


def odd_launches(history: History, unit: str) -> list[str]:
    """A warning of the configurations whose launches on the same nodes contradict each other, for each reason."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(o.name for o in history.reference if o.round):
        runs = [o for o in history.everything if o.name == name and o.figure and o.imported is None]
        for places in dict.fromkeys(places_of(o) for o in runs):
            here = [o for o in runs if places_of(o) == places]
            values = {value: ((o.half_width or 0.0) / 2) ** 2 for o in here if (value := o.figure)}
            if len(values) > 1 and differ_oddly([math.log(value) for value in values], [*values.values()]):
                whose = "your own configuration" if name == BASELINE else labels(runs)[name]
                told = f"of {whose} came to {number(min(values))} and {number(max(values))} {unit}"
                found.setdefault(_why(here), []).append(told)
    return [
        f"WARNING: launches {', '.join(told)}, which is more than launches differ by. {why}"
        for why, told in found.items()
    ]


def _why(runs: Sequence[Observation]) -> str:
    seen = [elements for o in runs if (elements := sample_elements(o))]
    if seen and max(seen) > _ALIKE * min(seen):
        return (
            f"A sample had {significant(max(seen) / min(seen), 2)} times the elements (tokens, pixels) in one of them: "
            "the longer a run, the further it came in data that are in an order of length. Shuffle them."
        )
    return (
        "Something disturbed some of them: other work on the machine, or caches that the first one had to fill. Tune "
        "again when the machine is quiet, if the result matters."
    )
