"""A script that was changed between the runs that are compared, in words."""

from collections.abc import Mapping, Sequence

from dsopt.search.history import History, Observation
from dsopt.search.tally import Tally, tallies
from dsopt.study.own_sources import changed_files, sources_now
from dsopt.study.spec import StudySpec

_Version = tuple[tuple[str, str], ...]  # its files and their digests


class _Scripts(Tally):
    """Of each version of a script, how many runs had it, and the place of the last one among all that ended."""

    def __init__(self) -> None:
        self.counts: dict[_Version, int] = {}
        self.last: dict[_Version, float] = {}

    def add(self, run: Observation) -> None:
        if run.sources and run.value is not None:
            version = tuple(sorted(run.sources.items()))
            self.counts[version] = self.counts.get(version, 0) + 1
            self.last[version] = max(run.order, self.last.get(version, 0.0))


def changed_script(spec: StudySpec, history: History) -> list[str]:
    """A warning if figures are of several versions of one script."""
    if not spec.compare:
        return _told("the study", tallies(history, _Scripts))
    lines = []
    for name in dict.fromkeys(o.name for o in history.reference):
        of_it = _Scripts()
        for o in history.reference:
            if o.name == name:
                of_it.add(o)
        lines += _told(f"the runs of {name}", [of_it])
    return lines


def runs_of_others(spec: StudySpec, history: History) -> tuple[list[str], int]:
    """The files that have changed since runs with a figure, and how many runs had another version of one.

    It reads the files as they are now.
    """
    counts = _added(tallies(history, _Scripts))
    now = sources_now(spec, {name for version in counts for name, _ in version})
    return _unlike(counts, now)


def named(files: Sequence[str]) -> str:
    """Files that were changed, as a subject with its verb."""
    first, rest = files[0], len(files) - 1
    return f"{first} was changed" if not rest else f"{first} and {rest} more file{'s' * (rest > 1)} were changed"


def _told(during: str, parts: list[_Scripts]) -> list[str]:
    counts = _added(parts)
    if len(counts) < 2:
        return []
    _, last = max((at, version) for each in parts for version, at in each.last.items())
    files, earlier = _unlike(counts, dict(last))
    if not files:  # one only imports more than the other
        return []
    return [
        f"WARNING: {named(files)} during {during}: {earlier} of {sum(counts.values())} runs had another version than "
        "the last, so factors compare scripts, too. Tune in a new study (another --name)."
    ]


def _unlike(counts: Mapping[_Version, int], reference: Mapping[str, str]) -> tuple[list[str], int]:
    """The files in which versions differ from the reference, and how many runs had one that does."""
    changed = {version: changed_files(dict(version), reference) for version in counts}
    files = sorted({file for of_version in changed.values() for file in of_version})
    return files, sum(counts[version] for version, of_version in changed.items() if of_version)


def _added(parts: Sequence[_Scripts]) -> Mapping[_Version, int]:
    counts: dict[_Version, int] = {}
    for part in parts:
        for version, count in part.counts.items():
            counts[version] = counts.get(version, 0) + count
    return counts
