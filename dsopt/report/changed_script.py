"""A script that was changed between the runs that are compared, in words."""

from collections.abc import Mapping

from dsopt.search.history import History, Observation
from dsopt.search.tally import Tally, tallies
from dsopt.study.comparison import spec_of_run
from dsopt.study.spec import StudySpec


class _Scripts(Tally):
    """Of each version of a script, how many runs had it, and the place of the last one among all that ended."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.last: dict[str, float] = {}

    def add(self, run: Observation) -> None:
        if run.script and run.value is not None:
            self.counts[run.script] = self.counts.get(run.script, 0) + 1
            self.last[run.script] = max(run.order, self.last.get(run.script, 0.0))


def changed_script(spec: StudySpec, history: History) -> list[str]:
    """A warning if figures are of several versions of one script."""
    if not spec.compare:
        return _told(spec.launch.script, "the study", tallies(history, _Scripts))
    lines = []
    for name in dict.fromkeys(o.name for o in history.reference):
        of_it = _Scripts()
        for o in history.reference:
            if o.name == name:
                of_it.add(o)
        if len(of_it.counts) > 1:
            lines += _told(spec_of_run(spec, name).launch.script, f"the runs of {name}", [of_it])
    return lines


def runs_of_others(history: History, script: str) -> int:
    """How many runs with a figure had another version of the script than this one."""
    counts = [each.counts for each in tallies(history, _Scripts)]
    return sum(count for of_part in counts for digest, count in of_part.items() if digest != script)


def _told(script: str, during: str, parts: list[_Scripts]) -> list[str]:
    counts = _added([each.counts for each in parts])
    if len(counts) < 2:
        return []
    last = max((at, digest) for each in parts for digest, at in each.last.items())[1]
    earlier = sum(count for digest, count in counts.items() if digest != last)
    return [
        f"WARNING: {script} was changed during {during}: {earlier} of {sum(counts.values())} runs had another "
        "version than the last, so factors compare scripts, too. Tune in a new study (another --name)."
    ]


def _added(parts: list[dict[str, int]]) -> Mapping[str, int]:
    return {digest: sum(part.get(digest, 0) for part in parts) for part in parts for digest in part}
