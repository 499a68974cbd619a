"""Judges the search's models of memory and step time by GPU runs that others published (`data/README.md`).

It feeds the first one, two and three runs of each group to the models that the search uses, and compares what they then
predict with the other runs of the group. Groups count alike, however many runs they have.

    python -m benchmarks.measured [FOLDER]
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.measured.judge import Groups, Guess, fits, memory_guesses, stage_order, time_guesses
from benchmarks.measured.runs import DATA, read_groups

_AFTER: Final = (1, 2, 3)


def main() -> None:
    """Prints the tables of a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    groups = read_groups(folder)
    if not groups:
        sys.exit(f"{folder}: there are no runs. Expected files *.csv with the columns that {DATA}/README.md describes.")
    print_tables(groups)


def print_tables(groups: Groups) -> None:
    """Prints the tables."""
    print(f"{sum(map(len, groups.values()))} runs of {len(groups)} groups\n")
    print("relative errors, %          groups  runs   mean  median  90th  worst   line: mean  90th   95 % holds")
    for after in _AFTER:
        _print_errors(f"peak memory after {after}", list(memory_guesses(groups, after)), by_source=after == 2)
    known = list(memory_guesses(groups, 1, knows_activations=True))
    _print_errors("  activations known", known, by_source=False)
    for after in _AFTER:
        _print_errors(f"step time after {after}", list(time_guesses(groups, after)), by_source=after == 2)
    print("\nof the other runs of each group    ran, called hopeless   out of memory, called likely to fit")
    for after in _AFTER:
        _print_fits(groups, after)
    print("\npairs of ZeRO stages in their true order after one run")
    for name, guesses in (("peak memory", memory_guesses), ("step time", time_guesses)):
        right, pairs = stage_order(list(guesses(groups, 1)))
        print(f"  {name:12} {right} of {pairs}")


def _print_errors(title: str, guesses: Sequence[Guess], *, by_source: bool) -> None:
    if not guesses:
        return
    predicted, line = (_spread(guesses, figure) for figure in (lambda g: g.predicted, lambda g: g.line))
    holds = sum(share for guess, share in zip(guesses, _shares(guesses), strict=True) if guess.holds)
    groups = len({guess.group for guess in guesses})
    print(
        f"{title:26} {groups:7} {len(guesses):5}  {' '.join(f'{100 * value:6.1f}' for value in predicted)}"
        f"       {100 * line[0]:6.1f} {100 * line[2]:6.1f}   {100 * holds:6.0f} %"
    )
    if by_source:
        for source in sorted({guess.group.partition(":")[0] for guess in guesses}):
            of_it = [guess for guess in guesses if guess.group.startswith(f"{source}:")]
            _print_errors(f"  {source}", of_it, by_source=False)


def _spread(guesses: Sequence[Guess], figure: Callable[[Guess], float]) -> tuple[float, float, float, float]:
    """Mean, median, 90th percentile and maximum of the relative errors."""
    errors = np.array([abs(figure(guess) / guess.truth - 1) for guess in guesses])
    shares = np.array(_shares(guesses))
    order = np.argsort(errors)
    below = np.cumsum(shares[order])
    median, ninetieth = (errors[order][min(len(errors) - 1, np.searchsorted(below, at))] for at in (0.5, 0.9))
    return float(shares @ errors), float(median), float(ninetieth), float(errors.max())


def _shares(guesses: Sequence[Guess]) -> list[float]:
    """What each counts for: groups count alike."""
    sizes = Counter(guess.group for guess in guesses)
    return [1 / sizes[guess.group] / len(sizes) for guess in guesses]


def _print_fits(groups: Groups, after: int) -> None:
    known = list(fits(groups, after))
    ran = [fit for fit in known if fit.run.outcome in ("ok", "largest_that_fits")]
    out = [fit for fit in known if fit.run.outcome == "oom"]
    print(
        f"  after {after}                              {sum(fit.is_hopeless for fit in ran)} of {len(ran)}"
        f"                {sum(fit.is_safe for fit in out)} of {len(out)}"
    )


if __name__ == "__main__":
    main()
