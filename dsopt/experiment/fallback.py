"""One run whose ranks may be shared or forked: where that went wrong, new ones are started, and that is what counts."""

from collections.abc import Callable
from dataclasses import replace

from dsopt.experiment.launch import Launch
from dsopt.experiment.outcome import Cancelled, Measured, Outcome, Slow
from dsopt.experiment.rules import RunRules
from dsopt.experiment.run import Progress, run_experiment

# in the run directory, for what ranks left that were not believed
_SHARED_FOLDER = "shared"
_WARM_FOLDER = "warm"
# what forked ranks say that no other ranks would deny
_BELIEVED = ("oom", "fixed_batch", "fixed_accumulation")


def run_with_fallback(
    launch: Launch, rules: RunRules, stop_asked: Callable[[], bool], on_progress: Callable[[Progress], None]
) -> Outcome:
    """Runs one attempt. What ranks that took the run over say is believed where they can be parked after it once more.

    Otherwise ranks of its own are asked: where the run has failed, also by running out of memory, and where its ranks
    kept something of the script. When ranks of its own can be measured, no further run of the lane shares any.
    """
    outcome = _run_forked(launch, rules, stop_asked, on_progress)
    shared = launch.shared
    if shared is None or not shared.has_lent(launch.run_dir) or isinstance(outcome, Cancelled):
        return outcome
    if isinstance(outcome, Measured | Slow) and shared.is_on:
        return outcome
    launch.run_dir.set_aside(_SHARED_FOLDER)
    again = _run_forked(replace(launch, shared=None), rules, stop_asked, on_progress)
    if isinstance(again, Measured | Slow):
        folder = launch.run_dir.path / _SHARED_FOLDER
        shared.give_up(f"a run failed that could be measured with ranks of its own; its logs: {folder}")
    return again


def _run_forked(
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
    if isinstance(outcome, Measured | Slow | Cancelled) or outcome.reason in _BELIEVED:
        return outcome
    launch.run_dir.set_aside(_WARM_FOLDER)
    again = run_experiment(replace(launch, warm=None, shared=None), rules, stop_asked, on_progress)
    if isinstance(again, Measured | Slow):
        warm.give_up(f"a run that could be measured directly failed; its logs: {launch.run_dir.path / _WARM_FOLDER}")
    return again
