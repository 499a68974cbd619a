"""What a result says of runs that failed: that nothing is confirmed, that nothing else ran, or what is left out."""

from collections.abc import Sequence

from dsopt.report.numbers import number
from dsopt.search.unconfirmed import Unconfirmed


def not_confirmed_text(found: Unconfirmed, unit: str, study: str) -> str:
    """What the search says, that it is no result, what failed, and what to do."""
    baseline = "does not run" if found.baseline is None else f"had {number(found.baseline)}"
    runs = [f"{name} (round {round_}): {message}" for name, round_, message in found.failures]
    return "\n".join(
        [
            f"Not confirmed. In the search {found.best} had {number(found.value)} {unit}, and your own "
            f"configuration {baseline}; when they were measured again, this failed:",
            *(f"  {run}" for run in runs),
            "So no configuration is called best, and none is written. See the logs, mend what made these runs "
            f"fail, and measure them again: dsopt study resume {study}, then dsopt worker {study}",
        ]
    )


def alone_text(crashed: Sequence[tuple[str, str]]) -> str:
    """That nothing but the user's own configuration was measured, and why; `crashed`: names and messages of runs."""
    alone = "No configuration but your own could be measured"
    if not crashed:
        return f"{alone}: keep it."
    name, message = crashed[0]
    runs = "1 run" if len(crashed) == 1 else f"{len(crashed)} runs"
    return f"{alone}, so nothing can be said of others: {runs} failed. The first, {name}: {message}"


def left_out_lines(failed: Sequence[tuple[str, int, str]]) -> list[str]:
    """The finalists that a result does not hold for, each with the round that it failed in, and why."""
    return [
        f"Left out, since it failed when it was measured again (round {round_}): {name}: {message}"
        for name, round_, message in failed
    ]
