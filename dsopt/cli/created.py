"""What the commands print about a study that they created."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from dsopt.cli.options import print_warnings
from dsopt.cli.prose import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsopt import Study


def show_created(study: "Study", earlier: str | None) -> None:
    """Prints warnings, what the study searches, which result files it moved, and what it took over from `earlier`."""
    from dsopt.api.shown import space_lines

    print_warnings(study.warnings)
    for line in space_lines(study.spec):
        say(line)
    if study.earlier_results is not None:
        say(f"Moved the result files of an earlier study '{study.name}' to {study.earlier_results}.")
    taken = study.taken_over
    if taken is None:
        return

    def listed(names: "Iterable[str]") -> str:
        return ", ".join(taken.labels.get(name, name) for name in names)

    say(f"Taken over from study '{earlier}', not measured again: {listed(taken.taken) or 'nothing new'}.")
    if taken.known:
        say(f"Already known: {listed(taken.known)}.")
    for why, count in Counter(why for _, why in taken.left).most_common():
        say(f"Skipped ({count}), because {why}: {listed(name for name, reason in taken.left if reason == why)}.")


def page_line(name: str, storage: str | None) -> str:
    """Where a study can be watched in a browser, or how."""
    from dsopt.api.page_address import page_of

    page = page_of(name, storage)
    return f"In a browser: {page}" if page else "In a browser: dsopt dashboard"


def created_json(study: "Study") -> dict[str, Any]:
    """The same as data."""
    taken = study.taken_over
    return {
        "name": study.name,
        "is_new": study.is_new,
        "state": study.state,
        "warnings": list(study.warnings),
        "earlier_results": str(study.earlier_results) if study.earlier_results else None,
        "taken_over": taken.to_json() if taken is not None else None,
    }
