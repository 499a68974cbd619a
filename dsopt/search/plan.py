"""What to do next, as a pure function of the spec and of what is known: an interrupted study simply continues."""

from collections.abc import Collection

from dsopt.search.baseline_twin import baseline_test
from dsopt.search.believed import Believed
from dsopt.search.comparison import comparison_step
from dsopt.search.disturbed import DISTURBED
from dsopt.search.facts import ModelFacts, facts_without_a_run
from dsopt.search.finalists import contenders, finalists
from dsopt.search.forecast import Forecast
from dsopt.search.from_elsewhere import first_from_elsewhere, imported_step, taken_over_step
from dsopt.search.giving_up import why_nothing_runs
from dsopt.search.history import BASELINE, History
from dsopt.search.joint import joint_step
from dsopt.search.least_memory import profile_candidate
from dsopt.search.payback import least_worth, share_of_training
from dsopt.search.repeat import disagreeing_step, disturbed_step, last_step
from dsopt.search.rounds import Entry, next_in_rounds
from dsopt.search.ruled_out import refusals
from dsopt.search.stage import stage_step
from dsopt.search.steps import Finish, GiveUp, RunReference, Step, Wait
from dsopt.search.unconfirmed import lacks_baseline, may_replace
from dsopt.study.spec import Confirmation, StudySpec


def next_step(spec: StudySpec, history: History) -> Step:
    """The next step of a study: baseline, stages in order, confirmation; or of a comparison."""
    if spec.compare:
        return comparison_step(spec, history)
    step = _reference_step(spec, history)
    if step is not None:
        return step
    facts = history.facts_for(spec)
    assert facts is not None
    left = [stage for stage in spec.stages if stage not in history.verdicts]
    if left and spec.is_joint:
        return joint_step(spec, history, facts, baseline_test(spec, history))
    if left:
        return stage_step(spec, history, facts, left[0])
    if history.telling_run is None:  # `model_info` was the only source
        return _before_rounds(spec, history, facts) or GiveUp(message=why_nothing_runs(spec, history))
    if spec.confirmation is None:
        return last_step(spec, history, Forecast(spec, facts, history))
    step = _before_rounds(spec, history, facts) or _confirmation_step(spec, history, spec.confirmation)
    return _before_result(spec, history, facts) or step if isinstance(step, Finish) else step


def state_of(step: Step) -> str:
    """The study's state while this step is taken."""
    if isinstance(step, RunReference):
        return "baseline" if step.round == 0 else "confirming"
    return "searching"


def _reference_step(spec: StudySpec, history: History) -> Step | None:
    baseline = history.find("baseline")
    if baseline is None:
        return RunReference(name="baseline", round=0, candidate=None)
    if baseline.state == "running":
        return Wait()
    if baseline.state == "measured":
        return None
    if baseline.reason in ("no_metrics", "timeout", "overflow", "machine"):
        return GiveUp(message=f"the baseline could not be measured: {baseline.message}")
    profile = history.find("profile")
    if profile is None:
        if history.facts_for(spec) is not None:
            return None  # `model_info` replaces it
        return RunReference(
            name="profile", round=0, candidate=profile_candidate(spec), why=_why_profiled(spec, history)
        )
    if profile.state == "running":
        return Wait()
    if profile.state == "measured":
        return None
    if profile.reason == "machine":
        return GiveUp(
            message=f"your configuration does not run: {baseline.message} "
            f"A smaller batch could not be measured, because its run met a fault of the machine: {profile.message}"
        )
    if profile in refusals(history):
        return GiveUp(
            message=f"your configuration does not run: {baseline.message} "
            f"A smaller batch could not be tried, because {profile.message}"
        )
    return GiveUp(message=why_nothing_runs(spec, history))


def _why_profiled(spec: StudySpec, history: History) -> str | None:
    """Why `model_info`, if it is given, does not replace a profile."""
    if spec.autotuning.model_info is None:
        return None
    is_counted = facts_without_a_run(spec, history.failed_engine) is not None
    missing = (
        "a GPU's memory; give memory_per_device" if is_counted else "how many GPUs there are; give autotuning.num_gpus"
    )
    return f"autotuning.model_info cannot replace it, because no run has shown {missing}"


def _before_rounds(spec: StudySpec, history: History, facts: ModelFacts) -> Step | None:
    """A run of what was only measured elsewhere, or may have been disturbed: rounds compare what has run here."""
    if any(o.round and o.why is None for o in history.reference):
        return None
    forecast = Forecast(spec, facts, history)
    least = least_worth(spec, history) if forecast.believed.winners else 0.0
    step = imported_step(history, forecast, least) or disturbed_step(history, forecast, least)
    is_elsewhere = any(o.imported is not None or o.taken_over is not None for o in history.everything)
    doubted = {o.name for o in history.reference if o.why == DISTURBED}
    if step is None and any(o.state == "running" and (is_elsewhere or o.name in doubted) for o in history.everything):
        return Wait()
    return step or (first_from_elsewhere(history, forecast.believed) if is_elsewhere else None)


def _before_result(spec: StudySpec, history: History, facts: ModelFacts) -> Step | None:
    """A run of what the rounds have made the best, if it was taken over and has not run here; or another launch of
    what contradicts itself."""
    believed = Believed(spec, facts, history)
    best = believed.best_shown if may_replace(history) else None
    if best is None:
        return None
    if best.name == BASELINE or best.ran_here:
        own = believed.index_of(BASELINE)
        return disagreeing_step(history, believed, best, None if own is None else believed.shown[own])
    is_going = any(o.name == best.name and o.state == "running" for o in history.reference)
    return Wait() if is_going else taken_over_step(history, best)


def _confirmation_step(spec: StudySpec, history: History, asked: Confirmation) -> Step:
    """Rounds of the baseline and each finalist, then of those that may still be the best, until that is clear."""
    chosen = finalists(spec, history, asked)
    if not may_replace(history):
        chosen = [o for o in chosen if history.find(o.name, 1) is not None]
    if not chosen:
        return Finish()
    baseline = history.find("baseline")
    runs: list[Entry] = [(o.name, o.candidate) for o in chosen]
    if baseline is not None and baseline.state == "measured":
        runs.insert(0, ("baseline", None))
    share = share_of_training(spec, history)

    def kept_after(_: int, names: list[str]) -> Collection[str]:
        if lacks_baseline(history):
            return names  # it failed; the next round tries it again, with all the others
        return contenders(spec, history, names, asked, share)

    return next_in_rounds(history, runs, asked.rounds, kept_after)
