"""What is known of a study so far, read from its Optuna trials: the only input to the search's decisions."""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

from dsopt.protocol.events import Engine
from dsopt.search.facts import ModelFacts, facts_without_a_run, with_model_info
from dsopt.search.run_quality import RunQuality
from dsopt.study.part import Part
from dsopt.study.space import Candidate, Setting, activation_knobs
from dsopt.study.spec import StudySpec
from dsopt.study.step_noise import StepNoise
from dsopt.study.trial_attributes import Phase

HOST_FULL: Final = "host_oom"  # maybe by other programs
FULL: Final = ("oom", HOST_FULL)  # why a run had no memory
BASELINE: Final = "baseline"  # the reference run of the user's own configuration
State = Literal["running", "measured", "slow", "infeasible", "failed"]


@dataclass(frozen=True, kw_only=True)  # no slots: what is asked of every run at every claim is kept
class Observation:
    """One trial that counts.

    Attributes:
        name: canonical name of the candidate, or `baseline` or `profile`.
        round: 0 in the search, 1, 2 … in the confirmation.
        candidate: the point of the space, or the least-memory profile; None for the user's own configuration.
        phase: whether it was run to find the stage's range of micro-batch sizes, or to explore within it.
        state: how it ended, or "running".
        reason: why it was not measured.
        message: the same for people.
        value: the metric; only if it was measured.
        facts: what the run showed of the model; only if it was measured here, or slow, and not imported.
        engine: what its engine reported, however the run ended; None if none was built here.
        imported: the folder of another tuner's results that it is from; None for what ran here.
        taken_over: the study that it was taken over from; None for this study's own runs.
        run_dir: its run directory; empty if there is none.
        value_so_far: the metric of a slow run, from the steps until it was stopped; None otherwise.
        value_bound: the metric that a slow run could have reached at best; None otherwise, or if that was not kept.
        half_width: half-width of the 95 % interval of the run's mean step time, relative to it; measured and slow only.
        is_sound: whether nearly all measured steps were applied, with finite losses; measured and slow only.
        why: why it was chosen, in words; only if the models chose it.
        wrote_outside: paths in the working folder that look like checkpoints and appeared while it ran.
        resumes_from: the checkpoint of DeepSpeed's from which a training would go on; empty if none was seen.
        saves_in_place: whether a run beside it would save to the same files of the working folder.
        quality: how good its numbers are; only if a run of this study measured it.
        noise: how much its steps differ; measured and slow only, and not from earlier versions.
        steps: how many it had, warm-up included; 0 if that is not known.
        step_seconds: mean wall clock of one after warm-up; measured and slow only.
        order: its place among what has ended, whatever the clocks of nodes say; infinite while it runs.
        seconds: wall clock of the run from its launch to its end, however it ended; None if nothing was launched.
        ran_on: the nodes that it ran on, as far as dsopt knows.
        sources: digests of its script's own files, by their names; empty if nobody knows.
        node_rates: what had been measured of the one node that it ran on, by the rate's name (`NodeRates`).
    """

    trial: int
    name: str
    round: int
    candidate: Candidate | None
    phase: Phase
    state: State
    reason: str | None
    message: str
    value: float | None
    facts: ModelFacts | None
    engine: Engine | None = None
    imported: str | None = None
    taken_over: str | None = None
    run_dir: str = ""
    value_so_far: float | None = None
    value_bound: float | None = None
    half_width: float | None = None
    seconds: float | None = None
    wrote_outside: str = ""
    resumes_from: str = ""
    saves_in_place: bool = False
    order: float = math.inf
    why: str | None = None
    is_sound: bool = True
    quality: RunQuality | None = None
    noise: StepNoise | None = None
    steps: int = 0
    step_seconds: float | None = None
    ran_on: tuple[str, ...] = ()
    node_rates: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def launched(self) -> bool:
        """Whether it cost a run: False if it was pruned before its launch, or imported."""
        return self.reason not in ("predicted_oom", "early_stopping") and self.imported is None

    @property
    def has_figure(self) -> bool:
        """Whether it has run, to its end or until it was stopped as too slow."""
        return self.state in ("measured", "slow")

    @property
    def figure(self) -> float | None:
        """Its metric; of one that was stopped as too slow, until then."""
        return self.value_so_far if self.state == "slow" else self.value

    @cached_property
    def activations(self) -> tuple[Setting, int, int] | None:
        """What its forward pass left, if that was seen: setting outside of ZeRO, micro-batch size, bytes."""
        if self.facts is None or not self.facts.activation_bytes:
            return None
        setting = activation_knobs(self.candidate.knobs) if self.candidate else ()
        return setting, self.facts.micro_batch, self.facts.activation_bytes

    @cached_property
    def is_spent(self) -> bool:
        """Whether it spends `tuner_num_trials` and patience: only this study's own runs do."""
        return self.launched and self.taken_over is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A trial that does not count, because the study cannot have made it; `why` says what it has, in words."""

    part: Part
    trial: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything that counts of one study.

    Attributes:
        reference: baseline, profile and confirmation runs.
        stages: observations by ZeRO stage.
        verdicts: why each closed stage is closed.
        maximize: whether a larger metric is better.
        aio: the `aio` section measured for the disk that is offloaded to, if one was.
        earlier: studies of the same script whose results the search starts from (`warm_start`).
        left_out: trials that are claimed, but cannot be the study's own.
        learnt: what models and tallies keep, each by its class, to take in of later histories of the same reader only
            what is new.
    """

    reference: Sequence[Observation]
    stages: Mapping[int, Sequence[Observation]]
    verdicts: Mapping[int, str] = field(default_factory=dict)
    maximize: bool = True
    aio: Mapping[str, Any] | None = None
    earlier: "Sequence[Earlier]" = ()
    left_out: Sequence[LeftOut] = ()
    learnt: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)

    def find(self, name: str, round_: int = 0) -> Observation | None:
        """A reference run by name and round."""
        return next((o for o in self.reference if o.name == name and o.round == round_), None)

    def searched(self, name: str) -> Observation | None:
        """The run of the search of a configuration by its name, or the user's own first run."""
        found = next((o for o in self.observations if o.name == name), None)
        return self.find(name) if found is None else self.measured_here(found)

    def measured_here(self, o: Observation) -> Observation:
        """The same; of what another tuner has measured, or was stopped, the first run measured here if there is one."""
        if o.imported is None and o.state != "slow":
            return o
        run = next((run for run in self.reference if run.name == o.name and run.state == "measured"), None)
        return o if run is None else replace(run, candidate=o.candidate)

    def tried(self, stage: int) -> list[Observation]:
        """The candidates of a stage; of one that was stopped as too slow, a later run, if one was measured."""
        return [self.measured_here(o) if o.state == "slow" else o for o in self.stages.get(stage, ())]

    @property
    def measured(self) -> list[Observation]:
        """Every measured candidate of every stage, likewise."""
        return [o for stage in self.stages for o in self.tried(stage) if o.state == "measured"]

    @property
    def observations(self) -> list[Observation]:
        """Every candidate of every stage."""
        return [*itertools.chain.from_iterable(self.stages.values())]

    @property
    def everything(self) -> list[Observation]:
        """Reference runs, then every candidate of every stage."""
        return [*self.reference, *self.observations]

    @property
    def wrote_outside(self) -> list[str]:
        """What looks like checkpoints and appeared in the working folder while any of these ran."""
        own = (o for o in self.everything if o.taken_over is None)
        return sorted({path for o in own for path in o.wrote_outside.split(", ") if path})

    @property
    def saves_in_place(self) -> bool:
        """Whether runs beside each other would save to the same files, as far as any has shown."""
        return any(o.saves_in_place for o in self.everything)

    @property
    def own_stage(self) -> int | None:
        """The ZeRO stage of the user's own configuration; None if it was not measured."""
        baseline = self.find("baseline")
        return baseline.facts.zero_stage if baseline is not None and baseline.facts is not None else None

    @property
    def begun_with(self) -> "tuple[Earlier, ModelFacts] | None":
        """The last earlier study that ran, with what it shows of model and devices."""
        for earlier in reversed(self.earlier):
            facts = earlier.history.facts_for(earlier.spec)
            if facts is not None:
                return earlier, facts
        return None

    @property
    def telling_run(self) -> Observation | None:
        """The run that shows model and devices: the baseline, else the profile, else the first that ran."""
        named = [found for name in ("baseline", "profile") if (found := self.find(name)) is not None]
        known = next((o for o in named if o.facts is not None), None)
        if known is not None:
            return known
        return min((o for o in self.everything if o.facts is not None), key=lambda o: o.order, default=None)

    @property
    def facts(self) -> ModelFacts | None:
        """What is known of the model from a run."""
        run = self.telling_run
        return run.facts if run else None

    @property
    def failed_engine(self) -> Engine | None:
        """The engine of the baseline, else of the least-memory profile, that stood before its run failed."""
        return next((o.engine for o in self.reference if o.engine is not None and o.facts is None), None)

    def facts_for(self, spec: StudySpec) -> ModelFacts | None:
        """The same with what the user says about the model, which also replaces a profile (`model_info`)."""
        known, info, baseline = self.facts, spec.autotuning.model_info, self.find("baseline")
        if known is not None:
            known = known if info is None else with_model_info(known, info)
        elif info is not None and baseline is not None and baseline.state != "running":
            known = facts_without_a_run(spec, self.failed_engine)
            known = known if known is not None and known.device_memory_bytes else None
        if known is None or baseline is None or baseline.facts is not None or baseline.state == "running":
            return known
        engine = baseline.engine
        return replace(known, own_ran=False, own_sizes=(engine.micro_batch, engine.gas) if engine is not None else None)

    def best(self, stage: int) -> Observation | None:
        """The best measured candidate of a stage."""
        return max((o for o in self.tried(stage) if o.state == "measured"), key=self.score, default=None)

    def score(self, observation: Observation) -> float:
        """The metric, with its sign reversed if less is better: larger is better."""
        assert observation.value is not None
        return observation.value if self.maximize else -observation.value

    def is_better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Whether a metric is better than another by more than the fraction `by`."""
        return value > than * (1 + by) if self.maximize else value < than / (1 + by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An earlier study: its spec, and what counts of it."""

    spec: StudySpec
    history: History
