"""What the first run of a study tells: how long the study will take, and what would need less memory."""

from dsopt.report.durations import short_duration
from dsopt.report.left import mean_seconds, what_is_left
from dsopt.search.facts import ModelFacts, facts_without_a_run
from dsopt.search.giving_up import memory_savers
from dsopt.search.history import BASELINE, History
from dsopt.search.sharding import sharding_of
from dsopt.study.quantity import gib
from dsopt.study.spec import StudySpec

_MOST_SAVERS = 4


def first_run_lines(spec: StudySpec, history: History) -> list[str]:
    """What to say when the user's own configuration has run and nothing else has; else nothing."""
    over = [o for o in history.everything if o.is_spent and o.state != "running"]
    if spec.compare or [o.name for o in over] != [BASELINE]:
        return []
    left, took = what_is_left(spec, history), mean_seconds(spec, history)
    if left is None or took is None:
        return memory_lines(spec, history)
    first = short_duration(took)
    basis = f"where the first would take {first}" if left.is_simulated else f"from the {first} that the first run took"
    return [f"{left.text().capitalize()}, {basis}."]


def memory_lines(spec: StudySpec, history: History, *, is_over: bool = False, told: str = "") -> list[str]:
    """What would help, if the user's own configuration ran out of a GPU's memory; else nothing.

    Args:
        spec, history: the study, and its runs.
        is_over: whether it goes on no more.
        told: what is said anyway, and so is not said again.
    """
    baseline = history.find(BASELINE)
    if baseline is None or baseline.reason != "oom":
        return []
    said = "Your own configuration ran out of memory."
    if not is_over:
        said += " dsopt goes on with what the study allows and needs less."
    savers = _savers(spec, facts_without_a_run(spec, history.failed_engine))
    return [] if savers and savers[-1] in told else [said, *savers]


def memory_lines_before(spec: StudySpec) -> list[str]:
    """The same before the first run, if model, GPUs and memory are known and the model's states alone do not fit."""
    facts = facts_without_a_run(spec, None)
    if facts is None or not facts.device_memory_bytes:
        return []
    needed = sharding_of(spec, facts, facts.zero_stage, ()).device_bytes(facts)
    if needed <= facts.device_memory_bytes:
        return []
    said = (
        f"Your own configuration needs {gib(needed)} for the model's states alone on each GPU of "
        f"{gib(facts.device_memory_bytes)}, so it will run out of memory. dsopt searches what the study allows."
    )
    return [said, *_savers(spec, facts)]


def _savers(spec: StudySpec, facts: ModelFacts | None) -> list[str]:
    savers = memory_savers(spec, facts)[:_MOST_SAVERS]
    return ["These would help, too, but the study does not allow them:", *(f"- {s}" for s in savers)] if savers else []
