"""dsopt's own search on a machine: plan, models and confirmation as a worker uses them, without processes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.search.machine import (
    DsConfig,
    Machine,
    Start,
    concrete,
    configured,
    seconds_to_first_step,
    shown,
    without_flags,
)
from benchmarks.search.measuring import measured
from benchmarks.search.records import Journal, Phase, Record
from benchmarks.search.space import Space
from dsopt.search.carry_out import next_run
from dsopt.search.facts import ModelFacts
from dsopt.search.forecast import Forecast
from dsopt.search.grid import Grid
from dsopt.search.history import BASELINE, Earlier, History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.standing import compare
from dsopt.search.steps import Explore, Finish, RunReference, Wait
from dsopt.search.tuners.model_based import ranked
from dsopt.simulated.cluster import Run
from dsopt.study.ds_config import baseline_config
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.study.spec import StudySpec
from dsopt.worker.stakes import stake_of

_HOPELESS = 0.02  # probability of fitting below which a configuration counts as ruled out


def spec_of(machine: Machine, *, fast: bool, **changes: Any) -> StudySpec:  # noqa: ANN401 - fields of a spec
    """The study of a machine."""
    nodes, ranks = machine.facts.nodes, machine.facts.gpus_per_node
    own_flags = " ".join(f"{flag} {values[0]}" for flag, values in machine.flags.items() if values[0] is not None)
    command = f"deepspeed --num_nodes {nodes} --num_gpus {ranks} train.py --deepspeed_config ds_config.json {own_flags}"
    tuning = {"fast": fast, "max_train_batch_size": machine.max_train_batch_size}
    content = {"name": "s", "command": command, "cwd": "/", "ds_config": without_flags(machine.baseline)}
    if machine.flags:
        content["search"] = {"args": {flag: list(values) for flag, values in machine.flags.items()}}
    stage = concrete(machine.baseline).get("zero_optimization", {}).get("stage")
    if stage is not None:  # the user's stage is where it begins; all of them may be tried
        content["ds_config"]["zero_optimization"] = {
            **machine.baseline["zero_optimization"],
            "stage": [stage, *(s for s in range(4) if s != stage)],
        }
    own = content["ds_config"].get(ACCUMULATION, 1)
    if own == 1:  # who does not accumulate does not say so, and leaves it free
        content["ds_config"].pop(ACCUMULATION, None)
    if machine.accumulations:
        content["ds_config"][ACCUMULATION] = [own, *(gas for gas in machine.accumulations if gas != own)]
    return StudySpec.model_validate({**content, "autotuning": tuning, **changes})


@dataclass(slots=True)
class DsoptTuner:
    """Tunes a machine as one worker would.

    Attributes:
        start: how ranks are started.
        fast: whether the documented knobs are left out.
        changes: of the study, for ablations.
        earlier: studies to begin with.
    """

    start: Start = "warm"
    fast: bool = True
    changes: dict[str, Any] = field(default_factory=dict)
    earlier: Sequence[Earlier] = ()
    name: str = "dsopt"

    def tune(self, machine: Machine, seed: int) -> Record:
        """Everything until the study is finished."""
        return self.study(machine, seed).run()

    def study(self, machine: Machine, seed: int) -> "Study":
        """The study of a machine, not begun."""
        return Study(spec_of(machine, fast=self.fast, **self.changes), machine, self, seed)


class Study:
    """One study from its baseline to its end, with all that is known of it."""

    def __init__(self, spec: StudySpec, machine: Machine, tuner: DsoptTuner, seed: int) -> None:
        self.spec = spec
        self.machine = machine
        self.tuner = tuner
        self.launch = 10_000 * seed
        self.journal = Journal(machine, tuner.name)
        self.reference: list[Observation] = []
        self.stages: dict[int, list[Observation]] = {stage: [] for stage in spec.stages}
        self.verdicts: dict[int, str] = {}
        self.memory_errors: list[float] = []
        self.log: list[str] = []

    @property
    def history(self) -> History:
        return History(reference=self.reference, stages=self.stages, verdicts=self.verdicts, earlier=self.tuner.earlier)

    def run(self) -> Record:
        while isinstance(run := next_run(self.spec, self), Observation):
            pass
        assert not isinstance(run, Wait), "nothing is running"
        return self.close() if isinstance(run, Finish) else self.journal.close(None)

    def close_stage(self, stage: int, verdict: str) -> None:
        self.verdicts[stage] = verdict
        self.log.append(f"close z{stage}: {verdict}")

    def run_reference(self, step: RunReference) -> Observation:
        phase: Phase = "confirm" if step.round else "profile" if step.name == "profile" else "baseline"
        found = self.observe(step.candidate, phase, step.name)
        candidate = None if step.name == BASELINE else step.candidate
        self.reference.append(replace(found, name=step.name, round=step.round, candidate=candidate, why=step.why))
        return self.reference[-1]

    def explore(self, step: Explore) -> Observation:
        candidate = ranked(step.candidates, step.forecast)[0]
        if step.forecast is not None:
            self.predict(step.forecast, candidate)
        found = self.observe(candidate, "search", candidate.name)
        self.stages[step.stage].append(replace(found, phase=step.phase))
        return self.stages[step.stage][-1]

    def close(self) -> Record:
        history = self.history
        result = compare(self.spec, history)
        choice = None
        stated = None
        if result is not None and result.best != BASELINE:
            chosen = next(o.candidate for o in history.measured if o.name == result.best)
            choice = configured(self.spec.ds_config, chosen)
            stated = result.interval
        return self.journal.close(
            choice, stated_factor=stated, memory_errors=tuple(self.memory_errors), ruled_out=self.ruled_out()
        )

    def ruled_out(self) -> frozenset[str]:
        """The configurations, with the first value of every knob, that are held to have no chance of fitting."""
        facts = self.history.facts_for(self.spec)
        if facts is None:
            return frozenset()
        memory = MemoryModel(self.spec, facts, self.history)
        space = Space.of(self.machine, fast=True)
        grid = Grid.of(list(space.candidates()))
        hopeless = memory.fit_probability(grid) < _HOPELESS
        candidates = [c for c, is_out in zip(grid.candidates, hopeless, strict=True) if is_out]
        return frozenset(shown(concrete(space.config(candidate))) for candidate in candidates)

    def predict(self, forecast: Forecast, candidate: Candidate) -> None:
        outlook = forecast.of([candidate])
        run = self.machine.run(configured(self.spec.ds_config, candidate), self.launch)
        peak, _ = forecast.memory.predict(Grid.of([candidate]))
        expected, true = peak[0] / 2**30, run.peak_allocated_bytes / 2**30
        self.log.append(f"{candidate.name}: {outlook.why(0, forecast.best)}, peak {expected:.2f} (is {true:.2f}) GiB")
        if len(self.journal.tried) >= 3 and run.oom is None:
            self.memory_errors.append(abs(float(peak[0]) / run.peak_allocated_bytes - 1))

    def launched(self, config: DsConfig) -> tuple[Run, tuple[str, ...]]:
        """The next launch, and the nodes that it is on; none where all are alike."""
        return self.machine.run(config, self.launch), ()

    def observe(self, candidate: Candidate | None, phase: Phase, name: str) -> Observation:
        config: DsConfig = (
            baseline_config(self.machine.baseline) if candidate is None else configured(self.spec.ds_config, candidate)
        )
        self.launch += 1
        run, ran_on = self.launched(config)
        nodes = self.machine.facts.nodes
        number = len(self.journal.tried)
        common: dict[str, Any] = {
            "trial": number, "name": candidate.name if candidate else BASELINE, "round": 0, "candidate": candidate,
            "phase": "explore", "message": run.oom or "", "order": float(number), "ran_on": ran_on,
        }  # fmt: skip
        if run.oom is not None:
            seconds = seconds_to_first_step(run, self.tuner.start, nodes)
            self.journal.add(config, phase, "oom", None, seconds)
            return Observation(**common, state="infeasible", reason="oom", value=None, facts=None, seconds=seconds)
        stake = stake_of(self.spec, name, None, candidate, self.history, ran_on)
        result = measured(run, self.tuner.start, nodes, self.spec.measurement, stake)
        found = result.measurement
        ended: Literal["slow", "measured"] = "slow" if result.lost else "measured"
        self.journal.add(config, phase, ended, found.samples_per_second, result.cluster_seconds)
        return Observation(
            **common,
            state=ended,
            reason="slow" if result.lost else None,
            value=None if result.lost else found.samples_per_second,
            value_so_far=found.samples_per_second if result.lost else None,
            facts=_facts(self.machine, config, run),
            half_width=found.relative_half_width,
            seconds=result.cluster_seconds,
            noise=found.noise,
            steps=found.warmup_steps + found.measured_steps,
            step_seconds=found.step_seconds,
        )


def _facts(machine: Machine, config: DsConfig, run: Run) -> ModelFacts:
    known = machine.facts
    return ModelFacts(
        num_params=known.params,
        trainable_params=known.trainable_params,
        world_size=known.ranks,
        dtype=known.dtype,
        device_memory_bytes=known.device_memory_bytes,
        zero_stage=config.get("zero_optimization", {}).get("stage", 0),
        micro_batch=config[MICRO_BATCH],
        gas=config.get(ACCUMULATION, 1),
        peak_memory_bytes=run.peak_reserved_bytes,
        peak_allocated_bytes=run.peak_allocated_bytes,
        activation_bytes=run.activation_bytes,
        outside_bytes=run.outside_bytes,
        largest_layer_params=known.largest_layer_params,
        hidden_size=known.hidden_size,
        num_layers=known.num_layers,
        flops_per_step=run.flops_per_step,
        host_memory_bytes=known.host_memory_bytes,
    )
