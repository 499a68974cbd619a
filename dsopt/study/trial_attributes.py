"""Declares every user attribute that dsopt writes to or reads from a trial in Optuna."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final, Literal, Protocol, TypedDict, cast

from dsopt.protocol.events import Engine
from dsopt.study.node_rates import NodeRates, is_rate

# why a candidate runs: to find its stage's range of micro-batch sizes, to explore that range, or for expected gain
Phase = Literal["range", "explore", "joint"]


class _Trial(Protocol):
    @property
    def user_attrs(self) -> Mapping[str, Any]: ...


class TrialAttributes(TypedDict, total=False):
    """The user attributes of a trial in Optuna. The fields of `Engine` are attributes, too, under their own names.

    Attributes:
        candidate: the candidate's name, or `baseline` or `profile`.
        round: 0 in the search, 1, 2 … in the confirmation.
        phase, why: why it was chosen, as a word and in words.
        run_dir: its run directory.
        sources: the script's own files, each with the beginning of the SHA-256 of what it holds, as a JSON object.
        ran_on: the names of the nodes that it ran on, separated by commas; absent in a dry run.
        node_matmul_tflops, node_copy_gb_per_s, node_all_reduce_gb_per_s: what its node had been measured to do
            (`NodeRates`); absent: it was not, or there were several.
        run_seconds: wall clock from launch to end.
        reason, message: why it was not measured, as a word and in words.
        imported: the folder of DeepSpeed's autotuner it was taken from.
        taken_over: the study that ran it.
        measured_as: the run whose outcome it has, because both have the same configuration.
        value_so_far, value_bound: the metric of a slow run until it was stopped, and the best it could have reached.
        wrote_outside: what looks like checkpoints and appeared in the working folder, separated by commas.
        resumes_from: the checkpoint of DeepSpeed's from which a training would go on; absent: none was seen.
        saves_in_place: whether a run beside it would save to the same files of the working folder; absent: not.
        profile_stage, profile_params: of the least-memory profile, the candidate that it was.
        samples_per_second, step_milliseconds: the figures.
        interval_percent: half-width of the 95 % interval of the mean step time, relative to it.
        measured_steps, warmup_steps: how many steps the figures are from, and how many before them were left out.
        step_deviation_percent, step_correlation: of these steps (`StepNoise`).
        drifting, unsound: whether the figures have these faults; absent: not.
        read_ahead: the first steps, if the mean has some of them and reading cannot keep up; absent: none.
        growth_percent: by how much its last samples had more elements than its first; absent: no trend.
        short_percent: by how much the figures are better than with the steps that were fed less; absent: nothing.
        pause_seconds: the one step after warm-up that the mean leaves out because it was so long; absent or 0: none.
        evaluation_percent: of the run's time, in passes without gradients that the figures leave out; absent: 0.
        skipped_percent, nonfinite_loss_percent, skipped_in_warmup: steps that were not sound; absent: none.
        peak_memory_bytes, peak_allocated_bytes, outside_bytes, activation_bytes, rows, elements, passes,
            step_rows, step_elements, is_evaluated, weight_bytes, gradient_bytes, optimizer_bytes, flops_per_step:
            as `Measured`.
        alloc_retries: as `Measured`; absent: none.
        dtype: of the engine; its other fields are written and read by the names of `Engine`.
    """

    candidate: str
    round: int
    phase: Phase
    why: str
    run_dir: str
    sources: str
    ran_on: str
    node_matmul_tflops: float
    node_copy_gb_per_s: float
    node_all_reduce_gb_per_s: float
    run_seconds: float
    reason: str
    message: str
    imported: str
    taken_over: str
    measured_as: str
    value_so_far: float
    value_bound: float
    wrote_outside: str
    resumes_from: str
    saves_in_place: bool
    profile_stage: int
    profile_params: str
    samples_per_second: float
    step_milliseconds: float
    interval_percent: float
    measured_steps: int
    warmup_steps: int
    step_deviation_percent: float
    step_correlation: float
    drifting: bool
    read_ahead: int
    growth_percent: float
    short_percent: float
    pause_seconds: float
    unsound: bool
    evaluation_percent: float
    skipped_percent: float
    nonfinite_loss_percent: float
    skipped_in_warmup: int
    peak_memory_bytes: int
    peak_allocated_bytes: int
    outside_bytes: int
    activation_bytes: int
    rows: int
    elements: int
    passes: int
    step_rows: float
    step_elements: float
    is_evaluated: bool
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    flops_per_step: float
    alloc_retries: int
    dtype: str


_OF_NODE: Final = "node_"
_RATES: Final = tuple(field.name for field in fields(NodeRates))
ORDER: Final = "dsopt:order"  # among system attributes: the study's version when the trial's claim last changed


def attributes_of(trial: _Trial) -> TrialAttributes:
    """What is written on a trial of Optuna's."""
    return cast(TrialAttributes, trial.user_attrs)


def node_attributes(rates: NodeRates) -> TrialAttributes:
    """What was measured of a node, as user attributes."""
    return cast(TrialAttributes, {f"{_OF_NODE}{name}": rate for name, rate in rates.of_node.items()})


def place_attributes(attrs: TrialAttributes) -> TrialAttributes:
    """Those that say where a run was, and of what script."""
    names = ("ran_on", "sources")
    of_place = {name: value for name, value in attrs.items() if name in names or name.startswith(_OF_NODE)}
    return cast(TrialAttributes, of_place)


def rates_of_node(attrs: TrialAttributes) -> dict[str, float]:
    """What `node_attributes` wrote, by the rate's name; empty if there is nothing."""
    found = {name: cast(float, attrs.get(f"{_OF_NODE}{name}", 0.0)) for name in _RATES}
    return {name: rate for name, rate in found.items() if is_rate(rate)}


def engine_attributes(engine: Engine) -> dict[str, Any]:
    """What an engine reported, as user attributes."""
    return {key: value for key, value in asdict(engine).items() if key != "rank" and value is not None}
