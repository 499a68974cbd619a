"""Results as Markdown tables."""

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.search.figures import AFTER_LAUNCHES, WITHIN, Figure, by_case, geometric_mean, interval
from benchmarks.search.results import Row

_HEADINGS = (
    "tuner",
    "launches",
    "experiments until its choice",
    "out of memory",
    "cluster minutes",
    "choice ÷ oracle, geometric mean (95 %)",
    "worst",
    "raised, over the batch limit",
    f"within {WITHIN:.0%} after {AFTER_LAUNCHES}",
)


def tuner_table(rows: Sequence[Row]) -> str:
    """All tuners side by side: means over cases."""
    tuners = list(dict.fromkeys(row.tuner for row in rows))
    cases = [case for case in by_case(rows) if all(tuner in case for tuner in tuners)]
    lines = []
    for tuner in tuners:
        own = [case[tuner] for case in cases]
        shares = [row.share for row in own]
        low, high = interval(cases, lambda chosen, tuner=tuner: geometric_mean([c[tuner].share for c in chosen]))
        count = len(own)
        lines.append(
            (
                tuner,
                f"{sum(r.launches for r in own) / count:.1f}",
                f"{sum(r.experiments_to_choice for r in own) / count:.1f}",
                f"{sum(r.ooms for r in own) / sum(r.launches for r in own):.1%}",
                f"{sum(r.cluster_seconds for r in own) / count / 60:.1f}",
                f"{geometric_mean(shares):.3f} ({low:.3f}–{high:.3f})",
                f"{min(shares):.3f}",
                f"{sum(r.error is not None for r in own)}, {sum(r.exceeds_batch for r in own)}",
                f"{sum(r.share_after(AFTER_LAUNCHES) >= 1 - WITHIN for r in own) / count:.1%}",
            )
        )
    return _table(_HEADINGS, lines)


def figure_table(figures: Sequence[Figure]) -> str:
    """Figures with their goals."""
    lines = [
        (
            figure.name,
            f"{figure.value:.3f}",
            "" if figure.low is None or figure.high is None else f"{figure.low:.3f}–{figure.high:.3f}",
            figure.goal,
            {True: "yes", False: "no", None: ""}[figure.is_met],
            str(figure.count),
        )
        for figure in figures
    ]
    return _table(("figure", "value", "95 % interval", "goal", "met", "cases"), lines)


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [headings, ["---", *["---:"] * (len(headings) - 1)], *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def pair_cells(pairs: Sequence[tuple[Row, Row]]) -> str:
    """Two ways of tuning the same cases side by side: launches, hours, choice ÷ oracle, and by how much it differs."""
    gains = np.array([math.log(one.share / other.share) for one, other in pairs])
    error = 1.96 * gains.std(ddof=1) / math.sqrt(len(gains))
    launches, hours, choice = (
        [float(np.mean([value(pair[side]) for pair in pairs])) for side in (0, 1)]
        for value in (lambda r: r.launches, lambda r: r.cluster_seconds / 3600, lambda r: r.share)
    )
    return (
        f"{launches[0]:.2f}, {launches[1]:.2f} | {hours[0]:.3f}, {hours[1]:.3f} | {choice[0]:.4f}, {choice[1]:.4f} | "
        f"{gains.mean():+.2%} ± {error:.2%}"
    )
