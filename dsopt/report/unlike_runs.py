"""What sets the runs of a study apart from each other, or from a whole training, as warnings."""

from typing import Final

from dsopt.report.changed_script import changed_script
from dsopt.report.doubts import qualities_of
from dsopt.report.odd_launches import odd_launches
from dsopt.search.history import History
from dsopt.study.spec import StudySpec

_BEYOND: Final = 30  # steps


def unlike_runs(spec: StudySpec, history: History) -> list[str]:
    """Warnings of several versions of one script, launches that contradict each other, engines, and slow input."""
    of_launches = odd_launches(history, spec.autotuning.unit)
    return [*changed_script(spec, history), *of_launches, *_further_engines(history), *_slow_input(history)]


def _further_engines(history: History) -> list[str]:
    """A warning if runs have built several engines that train, since figures are of the first one."""
    most = max((o.facts.engines for o in history.everything if o.facts is not None), default=1)
    if most == 1:
        return []
    return [
        f"WARNING: your script trains with {most} engines of DeepSpeed, and all figures are of the first one that it "
        "builds: its steps, its samples, and the memory until the run ended. Let it build the one that takes the most "
        "time first, and look whether the whole training is faster and fits, before you rely on the result."
    ]


def _slow_input(history: History) -> list[str]:
    """A warning if runs were too short to show that reading is slower than training."""
    most = max((quality.read_ahead for quality in qualities_of(history)), default=0)
    if not most:
        return []
    return [
        f"WARNING: your script reads its input more slowly than it trains. What it read while it began lasts for up to "
        f"{most} steps, and runs ended before: a whole training is slower than all figures, and may gain nothing. "
        f"Set 'measurement: {{max_steps: {_rounded(most)}, max_seconds: …}}' in a study file so that runs go on for "
        "longer than that, and tune in a new study, or let the script read faster."
    ]


def _rounded(steps: int) -> int:
    """Steps for a run that has enough of them after these."""
    return -(-(steps + _BEYOND) // 10) * 10
