"""Draws the two pictures of `docs/search.md`: what is believed of a study's candidates, and what its time went into.

python -m benchmarks.search.belief_plots [--seed 2007] [--out docs/images]
"""

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.scenarios.families import draw
from benchmarks.search.dsopt_tuner import DsoptTuner, Study
from benchmarks.search.machine import Simulated
from dsopt.report.readable import readable
from dsopt.search.carry_out import next_run
from dsopt.search.forecast import Forecast, Outlook
from dsopt.search.history import Observation
from dsopt.search.joint import spaced_sizes
from dsopt.search.payback import least_worth
from dsopt.search.speed import metric_of
from dsopt.study.space import Candidate

_COLOURS = ("#4878a8", "#d1843c", "#5a9e5a", "#a05a9e")
_LARGEST = 4  # micro-batch size, in the user's own
_AFTER = 2  # runs after which the first picture is drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2003)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    study = DsoptTuner().study(Simulated(draw(args.seed, noise=0.02)), args.seed)
    runs: list[Observation] = []
    while isinstance(run := next_run(study.spec, study), Observation):
        runs.append(run)
        if len(runs) == _AFTER:
            _draw_belief(study, args.out / "search-belief.png")
    _draw_study(runs, args.out / "search-study.png")


def _draw_belief(study: Study, path: Path) -> None:
    """The belief of each stage by micro-batch size, and below it the worth of a run."""
    facts = study.history.facts_for(study.spec)
    assert facts is not None
    forecast = Forecast(study.spec, facts, study.history)
    _, (above, below) = plt.subplots(2, 1, figsize=(8, 6.5), sharex=True, height_ratios=(3, 2))
    for stage, colour in zip(study.spec.stages, _COLOURS, strict=True):
        knobs = study.spec.space(stage, facts.hidden_size).settings()[0]
        candidates = [
            Candidate(stage=stage, micro_batch=size, gas=facts.gas, knobs=knobs)
            for size in spaced_sizes(_LARGEST * facts.micro_batch)
            if size >= facts.micro_batch
        ]
        outlook = forecast.of(candidates)
        _draw_stage(above, below, outlook, study, colour, f"ZeRO {stage}")
    for shown in forecast.believed.shown:
        mean = metric_of(study.spec, shown.mean(0.0)[0])
        above.plot(shown.candidate.micro_batch, mean, "o", color=_COLOURS[shown.candidate.stage], markeredgecolor="k")
    below.axhline(100 * least_worth(study.spec, study.history), color="k", linestyle=":", label="what it must be worth")
    above.set_ylabel("samples/s")
    below.set(xlabel="micro-batch size", ylabel="worth of a run, % for its time", ylim=(0, None))
    above.legend(loc="lower right", ncols=2)
    below.legend(loc="upper left")
    _save(path)


def _draw_stage(above: Axes, below: Axes, outlook: Outlook, study: Study, colour: str, label: str) -> None:
    likely = outlook.fits > 0.5
    sizes = np.array([candidate.micro_batch for candidate in outlook.grid.candidates])
    low, middle, high = (
        [metric_of(study.spec, float(score)) for score in outlook.score + times * outlook.deviation]
        for times in (-1.96, 0.0, 1.96)
    )
    above.fill_between(sizes, low, high, where=likely, color=colour, alpha=0.12, linewidth=0)
    above.plot(sizes[likely], np.array(middle)[likely], color=colour, label=label)
    is_new = ~np.isin(
        [candidate.name for candidate in outlook.grid.candidates], [o.name for o in study.history.everything]
    )
    below.plot(sizes[is_new], 100 * np.maximum(outlook.worth, 0.0)[is_new], color=colour)


def _draw_study(runs: list[Observation], path: Path) -> None:
    """A bar a launch, from its start to its end, and the best so far."""
    _, axes = plt.subplots(figsize=(8, 0.45 * len(runs) + 1.6))
    begun, best = 0.0, None
    for row, run in enumerate(runs):
        whole, steps = run.seconds or 0.0, run.steps * (run.step_seconds or 0.0)
        axes.barh(row, whole - steps, left=begun, color="#b8b8b8", label="start and warm-up" if not row else None)
        axes.barh(
            row, steps, left=begun + whole - steps, color=_COLOURS[0], label="measured steps" if not row else None
        )
        value = run.value or run.value_so_far
        best = max(best or 0.0, value or 0.0)
        said = f"{value:.0f} samples/s" if value else run.reason or ""
        axes.text(begun + whole, row, f"  {said}{', best so far' if value == best else ''}", va="center", fontsize=8)
        begun += whole
    names = [("yours" if r.candidate is None else readable(r.candidate)) + (", again" if r.round else "") for r in runs]
    axes.set_yticks(range(len(runs)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="seconds of the cluster", xlim=(0, 1.3 * begun))
    axes.legend(loc="lower left", fontsize=8)
    _save(path)


def _save(path: Path) -> None:
    plt.tight_layout()
    plt.savefig(path, dpi=110)
    plt.close()


if __name__ == "__main__":
    main()
