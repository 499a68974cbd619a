"""The versions of packages that runs trained with, in words: somebody may have updated one, or a node has others."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from dsopt.search.history import History, Observation


def software_of(history: History) -> str | None:
    """What the runs trained with, each once."""
    return "; ".join(_counted(history.everything)) or None


def several_versions(history: History) -> list[str]:
    """A warning if figures that are compared are of several versions of a package."""
    found = defaultdict[str, Counter[str]](Counter)  # by package, how many runs had each version
    for software, count in _counted(o for o in history.everything if o.has_figure).items():
        for named in software.split(", "):
            package, _, version = named.partition(" ")  # a script without DeepSpeed may name fewer
            found[package][version] += count
    several = {package: versions for package, versions in found.items() if len(versions) > 1}
    if not several:
        return []
    told = "; ".join(f"{package} {_versions(versions)}" for package, versions in several.items())
    return [
        f"WARNING: runs trained with several versions of a package: {told}. Factors compare these, too, and what was "
        "slow with one may be fast with another. Let all nodes have the same, and tune in a new study (another --name)."
    ]


def _versions(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{version} ({count} run{'s' * (count > 1)})" for version, count in counts.items())


def _counted(runs: Iterable[Observation]) -> Counter[str]:
    """How many of the runs trained with each."""
    return Counter(o.engine.software for o in runs if o.engine is not None and o.engine.software)
