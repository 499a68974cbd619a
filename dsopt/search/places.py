"""Where a figure was measured: on nodes of the study, or elsewhere.

Figures from elsewhere have in common what differs there, be it the machine or how another tuner measures. So they have
places of their own, each with one effect, as a node has (`search/nodes.py`).
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from dsopt.search.history import Observation

_IMPORTED: Final = "imported from "
_TAKEN_OVER: Final = "taken over from "


def places_of(o: Observation) -> tuple[str, ...]:
    """The places of a run: the names of its nodes, as far as they are known, or of what they were elsewhere."""
    if o.imported is not None:
        return (f"{_IMPORTED}{PurePath(o.imported).parent}",)  # each experiment has a folder of its own there
    if o.taken_over is not None:
        return tuple(f"{_TAKEN_OVER}{o.taken_over}: {node}" for node in o.ran_on or ("",))
    return o.ran_on


def is_elsewhere(place: str) -> bool:
    """Whether figures from there are of no run of this study."""
    return place.startswith((_IMPORTED, _TAKEN_OVER))


def source_of(place: str) -> str:
    """Where figures are from, whatever the node: `taken over from study-1`."""
    return place if is_imported(place) else place.partition(": ")[0]


def is_imported(place: str) -> bool:
    """Whether another tuner has measured there."""
    return place.startswith(_IMPORTED)


def here(ran_on: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Of the places of some runs, those of this study's own."""
    return [places for places in ran_on if not any(map(is_elsewhere, places))]
