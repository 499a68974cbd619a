"""One run whose ranks may be forked: where that went wrong, they are started directly, and that is what counts."""

from collections.abc import Callable
from dataclasses import replace

from dsopt.experiment.launch import Launch
from dsopt.experiment.outcome import Cancelled, Measured, Outcome, Slow
from dsopt.experiment.run import Progress, RunRules, run_experiment

_FOLDER = "warm"  # in the run directory, for what a forked start left


def run_with_fallback(
    launch: Launch, rules: RunRules, stop_asked: Callable[[], bool], on_progress: Callable[[Progress], None]
) -> Outcome:
    """Runs one attempt. A failure of forked ranks is believed only when ranks that were started directly fail, too.

    Where those can be measured, the script does not bear to be forked, and no further run of the lane is.
    """
    outcome = run_experiment(launch, rules, stop_asked, on_progress)
    warm = launch.warm
    if warm is None:
        return outcome
    if not warm.has_forked(launch.run_dir):
        if isinstance(outcome, Measured | Slow):
            warm.learn(launch.run_dir)
        return outcome
    if isinstance(outcome, Measured | Slow | Cancelled) or outcome.reason == "oom":
        return outcome
    launch.run_dir.set_aside(_FOLDER)
    again = run_experiment(replace(launch, warm=None), rules, stop_asked, on_progress)
    if isinstance(again, Measured | Slow):
        warm.give_up(f"a run that could be measured directly failed; its logs: {launch.run_dir.path / _FOLDER}")
    return again
