"""The versions of packages that runs trained with, in words: somebody may have updated one, or a node has others."""

from collections.abc import Iterable

from dsopt.search.history import History, Observation


def software_of(history: History) -> str | None:
    """What the runs trained with, each once."""
    return "; ".join(_counted(history.everything)) or None


def several_versions(history: History) -> list[str]:
    """A warning if figures that are compared are of several versions."""
    for framework in dict.fromkeys(o.engine.framework for o in history.everything if o.engine is not None):
        of_it = [o for o in history.everything if o.has_figure and o.engine and o.engine.framework == framework]
        counts = _counted(of_it)
        if len(counts) > 1:
            told = "; ".join(f"{count} with {versions}" for versions, count in counts.items())
            return [
                f"WARNING: runs trained with several versions of their packages: {told}. Factors compare these, too, "
                "and what was slow with one may be fast with another. Let all nodes have the same, and tune in a new "
                "study (another --name)."
            ]
    return []


def _counted(runs: Iterable[Observation]) -> dict[str, int]:
    """How many of the runs trained with each."""
    counts: dict[str, int] = {}
    for o in runs:
        if o.engine is not None and o.engine.software:
            counts[o.engine.software] = counts.get(o.engine.software, 0) + 1
    return counts
