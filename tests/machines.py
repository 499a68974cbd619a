"""Made-up machines that a plan is driven on to its end."""

from collections.abc import Callable
from dataclasses import replace

from dsopt.protocol.events import Engine
from dsopt.search.carry_out import next_run
from dsopt.search.facts import ModelFacts
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.pruners import runs_since_best
from dsopt.search.steps import Explore, Finish, GiveUp, RunReference
from dsopt.search.tuners.model_based import ranked
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.made_up import GIB, facts

Truth = Callable[[Candidate | None], float | str]


class Machine:
    """Runs a plan: `truth` gives the metric of a configuration (None: the user's own) or the reason it fails.

    `own` is what the user's own configuration comes to; `told` is what every observation says beside that, such as
    `half_width`.
    """

    def __init__(
        self,
        study: StudySpec,
        truth: Truth,
        memory: Callable[[Candidate], int] | None = None,
        own: Candidate = Candidate(stage=0, micro_batch=1, gas=1),  # noqa: B008 - frozen
        **told: object,
    ) -> None:
        self.spec = study
        self.truth = truth
        self.memory = memory or (lambda candidate: 4 * GIB)
        self.own = own
        self.told = told
        self.reference: list[Observation] = []
        self.stages: dict[int, list[Observation]] = {stage: [] for stage in study.stages}
        self.verdicts: dict[int, str] = {}
        self.offered: set[Candidate] = set()  # whatever the plan was ready to run
        self.message = ""
        self.shape: dict[str, object] = {}
        self.engine: Engine | None = None  # what a run that fails has told before

    @property
    def history(self) -> History:
        return History(
            reference=self.reference,
            stages=self.stages,
            verdicts=self.verdicts,
            maximize=self.spec.autotuning.maximize,
        )

    def run(self) -> "Machine":
        for _ in range(500):
            run = next_run(self.spec, self)
            if isinstance(run, Finish):
                return self
            if isinstance(run, GiveUp):
                self.message = run.message
                return self
            assert isinstance(run, Observation)
        raise AssertionError("the plan does not end")

    def close_stage(self, stage: int, verdict: str) -> None:
        self.verdicts[stage] = verdict

    def run_reference(self, step: RunReference) -> Observation:
        self.reference.append(replace(self.observe(step.name, step.round, step.candidate, "range"), why=step.why))
        return self.reference[-1]

    def explore(self, step: Explore) -> Observation:
        self.offered |= set(step.candidates)
        self.stages[step.stage].append(self.seen(step))
        return self.stages[step.stage][-1]

    def seen(self, step: Explore) -> Observation:
        """What comes of the candidate that is tried next: a run, or the refusal of a pruner."""
        candidate = (ranked(step.candidates, step.forecast) if step.phase == "joint" else step.candidates)[0]
        known = self.history.facts_for(self.spec)
        assert known is not None
        model = MemoryModel(self.spec, known, self.history)
        since = runs_since_best(self.history, self.stages[step.stage])
        if not model.fits(candidate):
            return self.refused(candidate, "predicted_oom", step.phase)
        if step.phase == "explore" and since >= self.spec.autotuning.patience:
            return self.refused(candidate, "early_stopping", step.phase)
        return self.observe(candidate.name, 0, candidate, step.phase)

    def refused(self, candidate: Candidate, reason: str, phase: str) -> Observation:
        return Observation(
            trial=0, name=candidate.name, round=0, candidate=candidate, phase=phase, state="infeasible",
            reason=reason, message=reason, value=None, facts=None,
        )  # fmt: skip

    def observe(self, name: str, round_: int, candidate: Candidate | None, phase: str) -> Observation:
        result = self.truth(candidate)
        measured = isinstance(result, float)
        ran = candidate or self.own
        known: ModelFacts | None = None
        if measured:
            peak = self.memory(ran)
            known = facts(
                zero_stage=ran.stage, micro_batch=ran.micro_batch, gas=ran.gas, peak_memory_bytes=peak,
                activation_bytes=self.activations(ran), **self.shape,
            )  # fmt: skip
        return Observation(
            trial=0, name=name, round=round_, candidate=candidate, phase=phase,
            state="measured" if measured else "infeasible" if result in ("oom", "invalid_config") else "failed",
            reason=None if measured else result, message="" if measured else f"because of {result}",
            value=result if measured else None, facts=known, engine=None if measured else self.engine,
            order=float(len(self.reference) + sum(map(len, self.stages.values()))), **self.told,
        )  # fmt: skip

    def activations(self, ran: Candidate) -> int:
        """What samples add to the peak."""
        return self.memory(ran) - self.memory(replace(ran, micro_batch=0)) or ran.micro_batch * GIB // 64

    def names(self, stage: int) -> list[str]:
        return [o.name for o in self.stages[stage]]


def saturating(best_stage: int) -> Truth:
    """Throughput that grows with the micro-batch up to 16, and peaks at a stage."""

    def truth(candidate: Candidate | None) -> float:
        stage, size = (candidate.stage, candidate.micro_batch) if candidate else (0, 1)
        return 100.0 * min(size, 16) / (min(size, 16) + 4) * (1 - 0.05 * abs(stage - best_stage))

    return truth
