"""Carries out a plan: closes stages and begins runs as it says, until a run has begun or there is none."""

from typing import Protocol, TypeAlias, TypeVar

from dsopt.search.history import History
from dsopt.search.plan import next_step
from dsopt.search.steps import CloseStage, Explore, Finish, GiveUp, RunReference, Wait
from dsopt.study.spec import StudySpec

Run_co = TypeVar("Run_co", covariant=True)
End: TypeAlias = Wait | Finish | GiveUp


class Ground(Protocol[Run_co]):
    """What a plan is carried out on: a database that workers share, or a made-up machine."""

    @property
    def history(self) -> History:
        """What is known now."""
        ...

    def close_stage(self, stage: int, verdict: str) -> None:
        """Records why a stage is closed."""
        ...

    def run_reference(self, step: RunReference) -> Run_co | None:
        """Begins a reference run. None: it is done; the plan is asked again."""
        ...

    def explore(self, step: Explore) -> Run_co | None:
        """Chooses a candidate and begins its run. None: it was refused before its launch; the plan is asked again."""
        ...


def next_run(spec: StudySpec, ground: Ground[Run_co]) -> Run_co | End:
    """The next run of a study, begun; or why there is none now."""
    while True:
        step = next_step(spec, ground.history)
        match step:
            case CloseStage(stage=stage, verdict=verdict):
                ground.close_stage(stage, verdict)
                continue
            case RunReference():
                run = ground.run_reference(step)
            case Explore():
                run = ground.explore(step)
            case _:
                return step
        if run is not None:
            return run
