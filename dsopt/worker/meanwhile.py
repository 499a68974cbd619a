"""What a worker may begin while something waits for the machine that the search would rather have first."""

from collections.abc import Callable
from dataclasses import replace

from dsopt.search.history import History
from dsopt.search.plan import next_step
from dsopt.search.steps import Explore
from dsopt.study.part import Part
from dsopt.study.spec import StudySpec


def step_meanwhile(spec: StudySpec, history: History, waits: Callable[[tuple[Part, int]], bool]) -> Explore | None:
    """Something new to try, as if what waits had not been begun; None: nothing waits, or nothing is to be tried.

    It may be worth less than the waiting ones promise. But if it goes well, it shows whose fault theirs was.

    Args:
        waits: whether a trial that is not over waits.
    """
    waiting = {
        (stage, o.name)
        for stage, tried in history.stages.items()
        for o in tried
        if o.state == "running" and waits((Part.of(stage), o.trial))
    }
    if not waiting:
        return None
    stages = {stage: [o for o in tried if (stage, o.name) not in waiting] for stage, tried in history.stages.items()}
    step = next_step(spec, replace(history, stages=stages, learnt={}))
    if not isinstance(step, Explore):
        return None
    others = [candidate for candidate in step.candidates if (step.stage, candidate.name) not in waiting]
    return replace(step, candidates=others) if others else None
