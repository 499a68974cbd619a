"""Best so far against launches and against cluster time, per tuner, as pictures for `docs/`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from numpy.typing import NDArray

from benchmarks.search.results import Row

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

# colours that stay apart for colour-blind readers (Okabe & Ito, 2008), and dashes for prints without any
_STYLES: Final = {
    "dsopt": ("#0072B2", "-"),
    "deepspeed": ("#D55E00", (0, (6, 2))),
    "optuna gp": ("#009E73", (0, (1, 1))),
    "optuna tpe": ("#CC79A7", (0, (3, 1, 1, 1))),
    "optuna random": ("#7F7F7F", (0, (4, 4))),
}
_BANDED: Final = ("dsopt", "deepspeed")  # five bands over each other would show nothing
# before anything runs there is no throughput; its logarithm would be infinite
_LEAST_SHARE: Final = 0.05
_TICKS: Final = (0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 1.0)
_STRETCH: Final = 0.02


def plot_best_so_far(rows: Sequence[Row], path: Path, title: str, launches: int = 30) -> None:
    """Draws the geometric mean over cases of the share of the oracle, with the band of the middle 80 % of the cases.

    A tuner that has ended keeps its choice. Until a tuner has measured something, it has the user's own configuration.

    Args:
        rows: of one set of cases and one noise level.
        path: of the PNG file.
        title: above both panels.
        launches: last one shown.
    """
    # white behind it, so that it is read the same on a light page and on a dark one
    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, (by_launch, by_time) = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True, layout="constrained")
        numbers = np.arange(0, launches + 1)
        _draw(by_launch, rows, numbers, lambda row: _at_launches(row, numbers))
        by_launch.set_xlabel("launches")
        by_launch.set_ylabel("true throughput of the best so far ÷ oracle")
        by_launch.set_xlim(0, launches)
        seconds = np.array([moment for row in rows for moment in row.seconds])
        times = np.geomspace(max(60.0, seconds.min()), np.quantile([row.cluster_seconds for row in rows], 0.98), 200)
        _draw(by_time, rows, times / 60, lambda row: _at_times(row, times))
        by_time.set_xscale("log")
        by_time.set_xlabel("cluster time, minutes")
        by_time.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        by_time.xaxis.set_major_formatter(FuncFormatter(lambda minutes, _: f"{minutes:g}"))
        by_time.xaxis.set_minor_formatter(NullFormatter())
        by_time.set_xlim(times[0] / 60, times[-1] / 60)
        for axes in (by_launch, by_time):
            axes.set_yscale("function", functions=(_stretched, _unstretched))
            axes.set_yticks(_TICKS)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.set_ylim(_TICKS[0], 1.0)
            axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
            axes.set_axisbelow(True)
        by_time.legend(loc="lower right", frameon=False)
        what = "lines: geometric mean over cases; shaded: the middle 80 % of the cases"
        figure.suptitle(f"{title[:1].upper()}{title[1:]} ({what})", x=0.01, ha="left", fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=144, facecolor="white", metadata={"Software": None})
        plt.close(figure)


def _draw(
    axes: Any,  # noqa: ANN401 - matplotlib's
    rows: Sequence[Row],
    places: NDArray[Any],
    shares_of: Callable[[Row], NDArray[np.float64]],
) -> None:
    for order, (tuner, (colour, dashes)) in enumerate(_STYLES.items()):
        curves = [shares_of(row) for row in rows if row.tuner == tuner]
        if not curves:
            continue
        shares = np.clip(np.array(curves), _LEAST_SHARE, 1.0)
        mean = np.exp(np.log(shares).mean(axis=0))
        style = {"color": colour, "linestyle": dashes, "linewidth": 2, "drawstyle": "steps-post", "zorder": 9 - order}
        axes.plot(places, mean, label=tuner, **style)
        if tuner in _BANDED and len(curves) > 1:
            low, high = np.quantile(shares, [0.1, 0.9], axis=0)
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0, step="post")


def _stretched(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scale of the shares: what is lost, by its logarithm, since tuners differ in their last percents."""
    return -np.log(1 + _STRETCH - np.minimum(shares, 1.0))


def _unstretched(places: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 + _STRETCH - np.exp(-places)


def _at_launches(row: Row, numbers: NDArray[Any]) -> NDArray[np.float64]:
    shares = np.array([row.baseline_share, *(share or 0.0 for share in row.shares)])
    return shares[np.minimum(numbers, row.launches)]


def _at_times(row: Row, times: NDArray[np.float64]) -> NDArray[np.float64]:
    return _at_launches(row, np.searchsorted(row.seconds, times, side="right"))
