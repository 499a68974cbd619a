"""The study spec: everything a person says about one tuning job, checked at the edge."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from dsopt.study.autotuning import Autotuning
from dsopt.study.command import LaunchCommand
from dsopt.study.compared import ComparedRun
from dsopt.study.dimensions import Search
from dsopt.study.ds_config import baseline_config, get_path, offload_devices, user_zero, zero_stages
from dsopt.study.names import flag_names, variable_names
from dsopt.study.quantity import parse_bytes
from dsopt.study.simulation import Simulation
from dsopt.study.space import (
    ACCUMULATION,
    MICRO_BATCH,
    NUM_GPUS,
    NUM_NODES,
    Knob,
    StageSpace,
    is_script_flag,
    stage_space,
)
from dsopt.study.strict import Strict

Start = Literal["warm", "direct", "launcher"]
_MONTH: Final = 31 * 86_400.0  # in seconds; longer waits are mistakes, and some cannot be waited for


def _without_sharing(value: object) -> object:
    """Studies of earlier versions may say `shared`, which dsopt no longer has."""
    return "warm" if value == "shared" else value


class MeasurementBudget(Strict):
    """How long one run is measured.

    Attributes:
        precision: half-width of the 95 % interval of the mean step time, relative to it, that ends a run.
        max_steps: optimizer steps after which a run ends, whatever its interval.
        max_seconds: the same in seconds, counted from the end of the first step, once a few steps are measured.
        race: whether dsopt stops a run of the search as soon as it can no longer become the best.
        count_evaluation: whether passes without gradients between steps, such as rollouts, are part of training also
            where not each step has them.
    """

    precision: float = Field(0.02, gt=0, lt=1)
    max_steps: int = Field(300, ge=5)
    max_seconds: float = Field(120.0, gt=0, le=_MONTH)
    race: bool = True
    count_evaluation: bool = False


class Confirmation(Strict):
    """How dsopt confirms the best: it measures finalists and the baseline again, in interleaved rounds.

    Attributes:
        finalists: at most this many, in addition to the baseline.
        rounds: at most this many; fewer if it is sure earlier which one is the best.
        certainty: probability of being the best that ends the confirmation. It also ends when the expected loss is
            below 0.5 %, or with `stop_when: payback` below the cost of another round.
    """

    finalists: int = Field(2, ge=1)
    rounds: int = Field(3, ge=1)
    certainty: float = Field(0.95, gt=0.5, lt=1)


class StudySpec(Strict):
    """One tuning job. It never changes once created; its hash tells two specs apart.

    Attributes:
        name: the study's name, also the prefix of its Optuna studies.
        command: the launch command exactly as typed today.
        cwd: folder that the command starts in, absolute.
        ds_config: DeepSpeed's configuration without its `autotuning` section.
        launcher: `simulated` in studies of earlier versions, in addition to `simulation`, which alone says it now.
        simulation: the cluster and the model of a dry run, which starts and trains nothing: its figures are computed.
        start: how ranks on this node start: forked from a process that has their imports (`warm`), each by itself
            (`direct`), or by the launcher program. If one way is not possible, dsopt uses the next.
        stage_order: `joint` runs next where the expected gain is; `sequential` takes one stage after the other, as
            DeepSpeed's tutorial and all tuners but `model_based` do.
        stop_when: `patience` is DeepSpeed's `tuner_early_stopping`; `payback` ends the search when no run is expected
            to save more of the real training than it costs.
        global_batch: `keep` tries only what trains with the user's own global batch: the accumulation follows the
            micro-batch size.
        warm_start: names of earlier studies of the same script in the same database; the search starts with what the
            last one that ran showed.
        training_hours: how long the real training would run with the best configuration so far.
        timeout_seconds: dsopt ends a run that it has not measured by then.
        search: dimensions beyond DeepSpeed's own.
        isolate: further flags that name what the script writes: each experiment gets its own path for them.
        pass_env: variables of the worker that look like secrets and that the script needs: names, or patterns such as
            `AWS_*`. Runs get no other such variable, except those that the command refers to.
        memory_per_device: cap on what one rank may use of its device, in bytes or such as `24GiB`; enforced.
        max_attempts: how often others have to go well after runs of a candidate that failed, so that it counts as
            failed when it fails again. Before anything has run: how often dsopt launches what dies. 1: once.
        price_per_gpu_hour: in any currency; results then say what samples and the study cost.
        compare: configurations to measure in turn with the user's own, instead of a search.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    command: str
    cwd: str
    ds_config: dict[str, Any]
    autotuning: Autotuning = Field(default_factory=lambda: Autotuning())
    search: Search = Field(default_factory=lambda: Search())
    launcher: Literal["simulated"] | None = None
    simulation: Simulation | None = None
    start: Annotated[Start, BeforeValidator(_without_sharing)] = "warm"
    stage_order: Literal["joint", "sequential"] = "joint"
    stop_when: Literal["patience", "payback"] = "patience"
    training_hours: float | None = Field(None, gt=0)
    global_batch: Literal["any", "keep"] = "any"
    warm_start: list[str] = Field(default_factory=list)
    timeout_seconds: float = Field(900.0, gt=0, le=_MONTH)
    isolate: Annotated[list[str], BeforeValidator(flag_names)] = Field(default_factory=list)
    pass_env: Annotated[list[str], BeforeValidator(variable_names)] = Field(default_factory=list)
    memory_per_device: Annotated[int | None, BeforeValidator(parse_bytes)] = Field(None, ge=1)
    measurement: MeasurementBudget = Field(default_factory=lambda: MeasurementBudget())
    confirmation: Confirmation | None = None
    max_attempts: int = Field(2, ge=1, le=1000)
    price_per_gpu_hour: float | None = Field(None, gt=0)
    compare: list[ComparedRun] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _without_launcher(cls, content: object) -> object:
        """A study of an earlier version says twice that it is a dry run."""
        if not isinstance(content, dict) or content.get("simulation") is None:
            return content
        return {key: value for key, value in content.items() if (key, value) != ("launcher", "simulated")}

    @model_validator(mode="after")
    def _names_each_run_once(self) -> Self:
        names = [run.name for run in self.compare]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"compare: '{name}' names two configurations; give each its own name")
        return self

    @model_validator(mode="after")
    def _knows_what_pays(self) -> Self:
        if (self.stop_when == "payback") != (self.training_hours is not None):
            raise ValueError("stop_when: payback and training_hours (how long the real training runs) need each other")
        if self.name in self.warm_start:
            raise ValueError(f"warm_start: '{self.name}' is this study itself; name earlier studies")
        return self

    @property
    def is_joint(self) -> bool:
        """Whether the search covers all stages at once."""
        return self.stage_order == "joint" and self.autotuning.tuner_type == "model_based"

    @cached_property
    def launch(self) -> LaunchCommand:
        """The command, taken apart."""
        return LaunchCommand.parse(self.command, f"study '{self.name}': command")

    @cached_property
    def resources(self) -> LaunchCommand:
        """The command with the GPUs and nodes that `autotuning` gives, or the first of a list there.

        The command's own numbers win over a list, which only names what else to try.
        """
        command = self.launch
        for given, typed, change in (
            (self.autotuning.num_nodes, command.option(*command.launcher.nodes) is not None, LaunchCommand.with_nodes),
            (self.autotuning.num_gpus, command.ranks is not None, LaunchCommand.with_ranks),
        ):
            if isinstance(given, int):
                command = change(command, given)
            elif given and not typed:
                command = change(command, given[0])
        if not isinstance(self.autotuning.num_nodes, list):
            command = command.without_idle_hostfile()
        return command if self.simulation is None else self._as_simulated(command, self.simulation)

    @staticmethod
    def _as_simulated(command: LaunchCommand, simulation: Simulation) -> LaunchCommand:
        """The command with the GPUs and nodes of the simulated cluster, unless it says them itself."""
        if simulation.nodes is not None and command.option(*command.launcher.nodes) is None:
            command = command.with_nodes(simulation.nodes)
        if simulation.gpus is not None and command.ranks is None:
            command = command.with_ranks(simulation.gpus)
        return command

    @property
    def most_resources(self) -> tuple[int | None, int]:
        """GPUs of a node (None if the study does not say) and nodes of the largest run."""
        own, tuning = self.resources, self.autotuning
        gpus = [own.ranks or 0, *(tuning.num_gpus if isinstance(tuning.num_gpus, list) else [])]
        nodes = [own.nodes, *(tuning.num_nodes if isinstance(tuning.num_nodes, list) else [])]
        return max(gpus) or None, max(nodes)

    @property
    def is_simulated(self) -> bool:
        """Whether it is a dry run."""
        return self.simulation is not None

    @cached_property
    def offload(self) -> tuple[str, str]:
        """Where the user's own configuration keeps optimizer states and parameters: `none`, `cpu` or `nvme` each."""
        return offload_devices(self.own_config)

    @cached_property
    def own_config(self) -> Mapping[str, Any]:
        """The user's configuration as the baseline runs it; nobody may change it."""
        return baseline_config(self.ds_config)

    def own_value(self, key: str) -> Knob:
        """What the user's own command or configuration has for a knob; None where it has nothing."""
        if is_script_flag(key):
            return self.launch.script_switch(key)
        value: Knob = get_path(self.own_config, key)
        return value

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """ZeRO stages to explore, ascending; none for a comparison."""
        return () if self.compare else zero_stages(self.ds_config)

    def space(self, stage: int, hidden_size: int | None = None) -> StageSpace:
        """The tuning space of one stage, for a model with this hidden size if it is known."""
        known = self.autotuning.model_info.hidden_size if self.autotuning.model_info else None
        key = (stage, hidden_size or known)
        if key not in self._spaces:
            self._spaces[key] = stage_space(
                stage,
                fast=self.autotuning.fast,
                user_zero=user_zero(self.ds_config),
                further=self._further,
                hidden_size=hidden_size or known,
            )
        return self._spaces[key]

    @cached_property
    def _spaces(self) -> dict[tuple[int, int | None], StageSpace]:
        return {}

    @property
    def _further(self) -> dict[str, tuple[Knob, ...]]:
        """Dimensions outside `zero_optimization`: resources, the script's flags, other keys."""
        resources = {NUM_NODES: self.autotuning.num_nodes, NUM_GPUS: self.autotuning.num_gpus}
        listed = {key: tuple(value) for key, value in resources.items() if isinstance(value, list) and len(value) > 1}
        chosen = {key: tuple(values) for key, values in (self.search.args | self.search.ds_config).items()}
        return listed | chosen

    @property
    def accumulation_list(self) -> tuple[int, ...] | None:
        """The accumulations to try if the user gives them, in the user's order."""
        value = self.ds_config.get(ACCUMULATION)
        return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int) else None

    @property
    def micro_batch_list(self) -> tuple[int, ...] | None:
        """The micro-batch sizes to try if the user lists them."""
        value = self.ds_config.get(MICRO_BATCH)
        return tuple(sorted(set(value))) if isinstance(value, list) else None

    @property
    def results_dir(self) -> str:
        """Where run directories and the final files go, relative to `cwd` or absolute."""
        return self.autotuning.results_dir or "autotuning_results"

    @property
    def exps_dir(self) -> str:
        """Where the experiment descriptions go, relative to `cwd` or absolute."""
        return self.autotuning.exps_dir or "autotuning_exps"

    def to_json(self) -> str:
        """The spec as canonical JSON text; it contains only what the user set, so that defaults may improve."""
        return json.dumps(self.model_dump(mode="json", exclude_unset=True), sort_keys=True)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that can change a result: all but `overwrite` and `price_per_gpu_hour`."""
        return digest_of(json.loads(self.to_json()))


def digest_of(content: dict[str, Any], *, with_price: bool = False) -> str:
    """The digest of a spec in the form in which it is stored; `with_price`: as studies of earlier versions have it."""
    content = {key: value for key, value in content.items() if with_price or key != "price_per_gpu_hour"}
    tuning = {key: value for key, value in content.get("autotuning", {}).items() if key != "overwrite"}
    known = content | ({"autotuning": tuning} if "autotuning" in content else {})
    if content.get("simulation") is not None:
        known["launcher"] = "simulated"  # as studies of earlier versions say
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
