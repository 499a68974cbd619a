"""Launches of one configuration that differ by far more than launches do, in words."""

import math

from dsopt.report.numbers import number
from dsopt.search.history import BASELINE, History
from dsopt.search.odd_runs import differ_oddly


def odd_launches(history: History, unit: str) -> list[str]:
    """A warning for each configuration whose launches on the same nodes contradict each other."""
    lines = []
    for name in dict.fromkeys(o.name for o in history.reference if o.round):
        runs = [o for o in history.everything if o.name == name and o.value and o.imported is None]
        for nodes in dict.fromkeys(o.ran_on for o in runs):
            values = {o.value: ((o.half_width or 0.0) / 2) ** 2 for o in runs if o.ran_on == nodes and o.value}
            if len(values) > 1 and differ_oddly([math.log(value) for value in values], [*values.values()]):
                whose = "your own configuration" if name == BASELINE else name
                told = f"{number(min(values))} and {number(max(values))} {unit}"
                lines.append(
                    f"WARNING: launches of {whose} came to {told}, which is more than launches differ by. Something "
                    "disturbed some of them: other work on the machine, or caches that the first one had to fill. Tune "
                    "again when the machine is quiet, if the result matters."
                )
    return lines
