"""The study spec: everything a person says about one tuning job, checked at the edge."""

import hashlib
import json
import math
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from dsopt.study.command import LaunchCommand
from dsopt.study.compared import ComparedRun
from dsopt.study.ds_config import baseline_config, has_twins, offload_devices, user_zero, zero_stages
from dsopt.study.quantity import parse_bytes
from dsopt.study.simulation import Simulation
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, ZERO, Knob, StageSpace, stage_space

OPTUNA_SAMPLERS = ("tpe", "gp", "auto", "cmaes")


def _mappings(value: object) -> object:
    """Flags as people write them: stray spaces in keys, with and without the leading dashes.

    The keys are checked with the configuration at hand (`check_mappings`).
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected an object of DeepSpeed keys and the script's flags")
    result = {}
    for key, flag in value.items():
        name = str(key).strip()
        if not isinstance(flag, str) or not flag.strip():
            raise ValueError(f"{name}: expected the script's flag, such as --per_device_train_batch_size")
        if name in result:
            raise ValueError(f"{name} stands twice")
        result[name] = flag.strip() if flag.strip().startswith("-") else f"--{flag.strip()}"
    return result


def _stripped(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _metric(value: object) -> object:
    """Names in any case: the documents write FLOPS, DeepSpeed's code flops."""
    if not isinstance(value, str):
        return value
    name = value.strip()
    return "FLOPS" if name.lower() in ("flops", "flops_per_gpu") else name.lower()


def _counts(value: object) -> object:
    """One number, or a list of different ones to try."""
    listed = value if isinstance(value, list) else [value]
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 1 for number in listed) or not listed:
        raise ValueError("expected a whole number of at least 1, or a list of such numbers to try")
    if len(set(listed)) < len(listed):
        raise ValueError("a number stands twice in the list")
    return value


def _choices(value: object, prefix: str = "") -> object:
    """Dimensions by dotted path: nested sections are taken apart, and each leaf has to be a list of single values."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected an object of names, each with a list of values to try")
    found: dict[str, list[Knob]] = {}
    for key, choices in value.items():
        path = f"{prefix}{str(key).strip()}"
        if isinstance(choices, dict):
            nested = _choices(choices, f"{path}.")
            assert isinstance(nested, dict)
            found |= nested
            continue
        single = (bool, int, float, str, type(None))
        if not isinstance(choices, list) or not choices or not all(isinstance(c, single) for c in choices):
            raise ValueError(f"{path}: expected a list of single values to try")
        if any(isinstance(choice, float) and not math.isfinite(choice) for choice in choices):
            raise ValueError(f"{path}: expected finite numbers in the list")
        if has_twins(choices):
            raise ValueError(f"{path}: a value stands twice in the list")
        found[path] = choices
    return found


def _flags(value: dict[str, list[Knob]]) -> dict[str, list[Knob]]:
    """Flags of the script with their dashes; a switch is `null` (absent) or "" (given)."""
    result: dict[str, list[Knob]] = {}
    for name, choices in value.items():
        switches: dict[Knob, Knob] = {True: "", False: None}
        flag = name if name.startswith("-") else f"--{name}"
        if flag in result:
            raise ValueError(f"{flag}: stands twice; give its values in one list")
        result[flag] = [
            switches[choice] if isinstance(choice, bool) else choice if choice is None else str(choice)
            for choice in choices
        ]
        if has_twins(result[flag]):
            raise ValueError(f'{flag}: a value stands twice in the list; true is the same as "", and false as null')
    return result


def _flag_names(value: object) -> object:
    """Names of the script's flags, with or without their dashes."""
    if not isinstance(value, list) or not all(isinstance(flag, str) and flag.strip() for flag in value):
        raise ValueError("expected a list of the script's flags, such as [--save-dir]")
    return [flag if flag.startswith("-") else f"--{flag}" for flag in map(str.strip, value)]


def _paths(value: dict[str, list[Knob]]) -> dict[str, list[Knob]]:
    for path in value:
        if path in (MICRO_BATCH, ACCUMULATION, "train_batch_size", f"{ZERO}stage"):
            raise ValueError(f"{path}: give its values in the DeepSpeed configuration itself, as a list")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelInfo(_Strict):
    """What the user knows of the model; it takes the place of a profile where the baseline does not run.

    Attributes:
        num_params, trainable_num_params: parameters of the whole model.
        activation_mem_per_gpu: bytes that one forward pass of one sample leaves allocated.
        hidden_size, num_layers: of the transformer.
        profile: DeepSpeed's switch for its own profiler; of no use here.
    """

    num_params: int = Field(ge=1)
    trainable_num_params: int | None = Field(None, ge=1)
    activation_mem_per_gpu: int = Field(0, ge=0)
    hidden_size: int | None = Field(None, ge=1)
    num_layers: int | None = Field(None, ge=1)
    profile: bool = False

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.trainable_num_params is not None and self.trainable_num_params > self.num_params:
            raise ValueError(f"trainable_num_params is more than num_params, {self.num_params}")
        return self


class Autotuning(_Strict):
    """DeepSpeed's `autotuning` section, with the tutorial's defaults."""

    enabled: bool = True
    results_dir: str | None = None
    exps_dir: str | None = None
    overwrite: bool = False
    metric: Annotated[
        Literal["throughput", "latency", "FLOPS", "forward", "backward", "step"], BeforeValidator(_metric)
    ] = "throughput"
    start_profile_step: int = Field(3, ge=0, validation_alias=AliasChoices("start_profile_step", "start_step"))
    end_profile_step: int = Field(5, ge=0, validation_alias=AliasChoices("end_profile_step", "end_step"))
    fast: bool = True
    num_nodes: Annotated[int | list[int] | None, BeforeValidator(_counts)] = None
    num_gpus: Annotated[int | list[int] | None, BeforeValidator(_counts)] = None
    max_train_batch_size: int | None = Field(None, ge=1)
    min_train_batch_size: int = Field(1, ge=1)
    min_train_micro_batch_size_per_gpu: int = Field(1, ge=1)
    max_train_micro_batch_size_per_gpu: int | None = Field(None, ge=1)
    mp_size: int = Field(1, ge=1)
    num_tuning_micro_batch_sizes: int = Field(3, ge=1)
    tuner_type: Annotated[
        Literal["model_based", "random", "gridsearch", "tpe", "gp", "auto", "cmaes"], BeforeValidator(_stripped)
    ] = "model_based"
    tuner_early_stopping: int = Field(5, ge=1)
    tuner_num_trials: int = Field(50, ge=1)
    arg_mappings: Annotated[dict[str, str], BeforeValidator(_mappings)] = Field(default_factory=dict)
    model_info: ModelInfo | None = None

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last step to measure, where the user set them; otherwise warm-up is detected."""
        given = {"start_profile_step", "end_profile_step"} & self.model_fields_set
        return (self.start_profile_step, self.end_profile_step) if given else None

    @property
    def unit(self) -> str:
        """The metric's unit, as people read it."""
        return {"throughput": "samples/s", "FLOPS": "FLOPS/GPU"}.get(self.metric, "ms/step")

    @property
    def maximize(self) -> bool:
        """Whether a larger metric is better."""
        return self.metric in ("throughput", "FLOPS")


class Search(_Strict):
    """Dimensions that DeepSpeed's autotuner does not know.

    Attributes:
        args: values of the training script's flags; None is absent, "" is given without a value.
        ds_config: values of keys in DeepSpeed's configuration, by dotted path; None is absent.
    """

    args: Annotated[dict[str, list[Knob]], BeforeValidator(_choices), AfterValidator(_flags)] = Field(
        default_factory=dict
    )
    ds_config: Annotated[dict[str, list[Knob]], BeforeValidator(_choices), AfterValidator(_paths)] = Field(
        default_factory=dict
    )


class MeasurementBudget(_Strict):
    """How long one run is measured.

    Attributes:
        precision: half-width of the 95 % interval of the mean step time, relative to it, that ends a run.
        max_steps: optimizer steps after which a run ends whatever its interval.
        max_seconds: the same in seconds, counted from the end of the first step, once a few were measured.
        race: whether a run of the search is stopped as soon as it cannot become the best any more.
    """

    precision: float = Field(0.02, gt=0, lt=1)
    max_steps: int = Field(300, ge=5)
    max_seconds: float = Field(120.0, gt=0)
    race: bool = True


class Confirmation(_Strict):
    """How the best is confirmed: finalists and the baseline are measured again, in interleaved rounds.

    Attributes:
        finalists: at most so many beside the baseline.
        rounds: at most so many; there are fewer where the best is sure to be the best.
        certainty: probability of being the best that ends the confirmation. It also ends when less than 0.5 % is
            expected to be lost, or with `stop_when: payback` less than another round costs.
    """

    finalists: int = Field(2, ge=1)
    rounds: int = Field(3, ge=1)
    certainty: float = Field(0.95, gt=0.5, lt=1)


class StudySpec(_Strict):
    """One tuning job. Immutable once created; its hash tells two specs apart.

    Attributes:
        name: the study's name, also the prefix of its Optuna studies.
        command: the launch command exactly as typed today.
        cwd: folder the command is started in, absolute.
        ds_config: DeepSpeed's configuration without its `autotuning` section.
        launcher: `simulated` is a dry run: nothing is started or trained, and what is measured is computed.
        simulation: the cluster and the model of a dry run.
        start: how ranks on this node are started: forked from a process that has their imports (`warm`), each by
            itself (`direct`), or by the launcher program; `shared` is `warm`, and ranks run several micro-batch sizes
            of one setting, one after the other. What cannot be is started in the next of these ways.
        stage_order: `joint` goes where the expected gain is; `sequential` through the stages as DeepSpeed's tutorial
            does, and as all tuners but `model_based` do.
        stop_when: `patience` is DeepSpeed's `tuner_early_stopping`; `payback` ends the search when no run is expected
            to save more of the real training than it costs.
        warm_start: names of earlier studies of the same script in the same database; the last one that ran is what
            the search begins with.
        training_hours: how long the real training would run with the best configuration so far.
        timeout_seconds: a run that has not been measured by then is ended.
        search: dimensions beyond DeepSpeed's own.
        isolate: flags of the script that name what it writes, beside the usual ones: each experiment has its own.
        memory_per_device: cap on what one rank may use of its device, in bytes.
        max_attempts: how often a candidate is launched when the run dies without an exception of its own.
        compare: configurations that are measured in turn with the user's own, in place of a search.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    command: str
    cwd: str
    ds_config: dict[str, Any]
    autotuning: Autotuning = Field(default_factory=lambda: Autotuning())
    search: Search = Field(default_factory=lambda: Search())
    launcher: Literal["simulated"] | None = None
    simulation: Simulation | None = None
    start: Literal["shared", "warm", "direct", "launcher"] = "warm"
    stage_order: Literal["joint", "sequential"] = "joint"
    stop_when: Literal["patience", "payback"] = "patience"
    training_hours: float | None = Field(None, gt=0)
    warm_start: list[str] = Field(default_factory=list)
    timeout_seconds: float = Field(900.0, gt=0)
    isolate: Annotated[list[str], BeforeValidator(_flag_names)] = Field(default_factory=list)
    memory_per_device: Annotated[int | None, BeforeValidator(parse_bytes)] = Field(None, ge=1)
    measurement: MeasurementBudget = Field(default_factory=lambda: MeasurementBudget())
    confirmation: Confirmation = Field(default_factory=lambda: Confirmation())
    max_attempts: int = Field(2, ge=1)
    compare: list[ComparedRun] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_each_run_once(self) -> Self:
        names = [run.name for run in self.compare]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"compare: '{name}' names two configurations; give each a name of its own")
        return self

    @model_validator(mode="after")
    def _knows_what_pays(self) -> Self:
        if (self.stop_when == "payback") != (self.training_hours is not None):
            raise ValueError("stop_when: payback and training_hours (how long the real training runs) go together")
        if self.name in self.warm_start:
            raise ValueError(f"warm_start: '{self.name}' is this study itself; name earlier ones")
        return self

    @property
    def is_joint(self) -> bool:
        """Whether the search is over all stages at once."""
        return self.stage_order == "joint" and self.autotuning.tuner_type == "model_based"

    @cached_property
    def launch(self) -> LaunchCommand:
        """The command, taken apart."""
        return LaunchCommand.parse(self.command, f"study '{self.name}': command")

    @cached_property
    def resources(self) -> LaunchCommand:
        """The command with the GPUs and nodes that `autotuning` gives; the first of a list, where one stands there.

        What the command itself says goes before a list, which only names what to try beside it.
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
        """The command with the GPUs and nodes that there are in a dry run, where it does not say."""
        if simulation.nodes is not None and command.option(*command.launcher.nodes) is None:
            command = command.with_nodes(simulation.nodes)
        if simulation.gpus is not None and command.ranks is None:
            command = command.with_ranks(simulation.gpus)
        return command

    @property
    def most_resources(self) -> tuple[int | None, int]:
        """GPUs of a node (where that is said) and nodes of the largest run."""
        own, tuning = self.resources, self.autotuning
        gpus = [own.ranks or 0, *(tuning.num_gpus if isinstance(tuning.num_gpus, list) else [])]
        nodes = [own.nodes, *(tuning.num_nodes if isinstance(tuning.num_nodes, list) else [])]
        return max(gpus) or None, max(nodes)

    @property
    def is_simulated(self) -> bool:
        """Whether it is a dry run."""
        return self.launcher == "simulated"

    @cached_property
    def offload(self) -> tuple[str, str]:
        """Where the user's own configuration keeps optimizer states and parameters: `none`, `cpu` or `nvme` each."""
        return offload_devices(baseline_config(self.ds_config))

    @property
    def stages(self) -> tuple[int, ...]:
        """ZeRO stages to explore, ascending; none where configurations are only compared."""
        return () if self.compare else zero_stages(self.ds_config)

    def space(self, stage: int, hidden_size: int | None = None) -> StageSpace:
        """The tuning space of one stage, of a model with this hidden size where it is known."""
        known = self.autotuning.model_info.hidden_size if self.autotuning.model_info else None
        return stage_space(
            stage,
            fast=self.autotuning.fast,
            user_zero=user_zero(self.ds_config),
            further=self._further,
            hidden_size=hidden_size or known,
        )

    @property
    def _further(self) -> dict[str, tuple[Knob, ...]]:
        """Dimensions outside `zero_optimization`: resources, the script's flags, other keys."""
        resources = {NUM_NODES: self.autotuning.num_nodes, NUM_GPUS: self.autotuning.num_gpus}
        listed = {key: tuple(value) for key, value in resources.items() if isinstance(value, list) and len(value) > 1}
        chosen = {key: tuple(values) for key, values in (self.search.args | self.search.ds_config).items()}
        return listed | chosen

    @property
    def accumulation_list(self) -> tuple[int, ...] | None:
        """The accumulations to try where the user gives them, in the user's order."""
        value = self.ds_config.get(ACCUMULATION)
        return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int) else None

    @property
    def micro_batch_list(self) -> tuple[int, ...] | None:
        """The micro-batch sizes to try where the user lists them."""
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
        """The spec as canonical JSON text; only what was set stands in it, so that defaults may improve."""
        return json.dumps(self.model_dump(mode="json", exclude_unset=True), sort_keys=True)

    @property
    def digest(self) -> str:
        """SHA-256 of what would change a result: everything but `overwrite`."""
        content = json.loads(self.to_json())
        content.get("autotuning", {}).pop("overwrite", None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
