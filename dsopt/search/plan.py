"""What to do next, as a pure function of the spec and of what is known: an interrupted study simply continues."""

import itertools
from collections.abc import Collection
from functools import partial

from dsopt.search.comparison import comparison_step
from dsopt.search.confirm import contenders, may_be_best
from dsopt.search.facts import facts_without_a_run
from dsopt.search.giving_up import why_nothing_runs
from dsopt.search.history import History, Observation
from dsopt.search.joint import joint_step
from dsopt.search.least_memory import profile_candidate
from dsopt.search.payback import share_of_training
from dsopt.search.rounds import Entry, next_in_rounds
from dsopt.search.ruled_out import refusals
from dsopt.search.stage import stage_step
from dsopt.search.steps import Finish, GiveUp, RunReference, Step, Wait
from dsopt.search.unconfirmed import failed_finalists, lacks_baseline, may_replace
from dsopt.study.ds_config import candidate_config
from dsopt.study.space import NUM_GPUS, NUM_NODES, Candidate
from dsopt.study.spec import StudySpec


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
        return joint_step(spec, history, facts, partial(is_baseline, spec, history))
    if left:
        return stage_step(spec, history, facts, left[0])
    if history.telling_run is None:  # `model_info` was the only source
        return GiveUp(message=why_nothing_runs(spec, history))
    return _confirmation_step(spec, history)


def state_of(step: Step) -> str:
    """The study's state while this step is taken."""
    if isinstance(step, RunReference):
        return "baseline" if step.round == 0 else "confirming"
    return "searching"


def finalists(spec: StudySpec, history: History) -> list[Observation]:
    """The measured candidates that may be the best, given the noise: at most as many as the spec allows.

    Imported figures were measured differently, so they are compared among themselves. The best of the imported and of
    the others alternate; neither kind is left out. One that failed in the confirmation makes room for the next.
    """
    failed = failed_finalists(history)
    ranked = sorted((o for o in history.measured if o.name not in failed), key=history.score, reverse=True)
    kinds = []
    for is_imported in (False, True):
        alike = [o for o in ranked if (o.imported is not None) == is_imported]
        near = [o for o in alike if may_be_best(history, o, alike[0])]
        kinds.append([o for o in near if not is_baseline(spec, history, o.candidate)])
    in_turn = [o for pair in itertools.zip_longest(*kinds) for o in pair if o is not None]
    return in_turn[: max(spec.confirmation.finalists, sum(bool(kind) for kind in kinds))]


def is_baseline(spec: StudySpec, history: History, candidate: Candidate | None) -> bool:
    """Whether a candidate is the user's own configuration under another name."""
    baseline = history.find("baseline")
    facts = baseline.facts if baseline else None
    if facts is None or candidate is None:
        return False
    own = facts.candidate()
    if (own.stage, own.micro_batch, own.gas) != (candidate.stage, candidate.micro_batch, candidate.gas):
        return False
    if any(spec.launch.script_switch(flag) != value for flag, value in candidate.script_flags.items()):
        return False
    resources = spec.resources
    nodes, ranks = candidate.resource(NUM_NODES), candidate.resource(NUM_GPUS)
    if nodes not in (None, resources.nodes) or ranks not in (None, facts.world_size // resources.nodes):
        return False
    return candidate_config(spec.ds_config, candidate) == candidate_config(spec.ds_config, own)


def _reference_step(spec: StudySpec, history: History) -> Step | None:
    baseline = history.find("baseline")
    if baseline is None:
        return RunReference(name="baseline", round=0, candidate=None)
    if baseline.state == "running":
        return Wait()
    if baseline.state == "measured":
        return None
    if baseline.reason in ("no_metrics", "timeout", "overflow"):
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


def _confirmation_step(spec: StudySpec, history: History) -> Step:
    """Rounds of the baseline and each finalist, then of those that may still be the best, until that is clear."""
    chosen = finalists(spec, history)
    if not may_replace(history):
        chosen = [o for o in chosen if history.find(o.name, 1) is not None]
    if not chosen:
        return Finish()
    baseline = history.find("baseline")
    runs: list[Entry] = [(o.name, o.candidate) for o in chosen]
    if baseline is not None and baseline.state == "measured":
        runs.insert(0, ("baseline", None))
    share = share_of_training(spec, history)

    def kept_after(round_: int, names: list[str]) -> Collection[str]:
        if lacks_baseline(history):
            return names  # it failed; the next round tries it again, with all the others
        return contenders(history, names, round_, spec.confirmation.certainty, share)

    return next_in_rounds(history, runs, spec.confirmation.rounds, kept_after)
