"""From a task to a launch: the files that describe a run, and the rules for ending it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsopt.experiment.outcome import PASSES
from dsopt.experiment.rules import OwnSizes, RunRules
from dsopt.launch.beside import began_ns
from dsopt.launch.launch import Launch
from dsopt.launch.swap import give_own_swap
from dsopt.search.history import BASELINE, History, Observation
from dsopt.store.attempts import Task
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.command import LaunchCommand
from dsopt.study.comparison import plain_sizes
from dsopt.study.folders import exps_folder
from dsopt.study.isolation import isolated_command, isolated_config
from dsopt.study.own_settings import is_own_value
from dsopt.study.own_sizes import own_size
from dsopt.study.script_flags import is_on
from dsopt.study.simulation import Simulation
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import filled_in
from dsopt.worker.assignment import Assignment
from dsopt.worker.stakes import stake_of

_CHECKPOINTING_FLAG = "--gradient_checkpointing"  # of the Hugging Face Trainer


def rules_of(
    spec: StudySpec, task: Task, candidate: Candidate | None, history: History, nodes: Sequence[str] = ()
) -> RunRules:
    """When to end a run on these nodes, and what it must agree with."""
    tuning = spec.autotuning
    told = (o for o in history.reference if o.name == BASELINE and o.facts is not None)  # a comparison has only rounds
    baseline = next(told, history.find(BASELINE))
    shown = baseline if baseline is not None and baseline.facts is not None else history.telling_run
    return RunRules(
        measurement=spec.measurement,
        window=tuning.window,
        floor=(tuning.start_profile_step, tuning.end_profile_step),
        timeout_seconds=spec.timeout_seconds,
        expected=candidate,
        needs_flops=tuning.metric == "FLOPS",
        needs_pass=tuning.metric if tuning.metric in PASSES else None,
        own=None if task.name == BASELINE else _own_sizes(spec, shown, is_own=shown is baseline),
        is_evaluated=shown.facts.is_evaluated if shown is not None and shown.facts is not None else None,
        varied=_varied(spec, candidate),
        arg_mappings=tuning.arg_mappings,
        own_flag=_own_flag(spec),
        must_be_sound=task.name not in (BASELINE, "profile") and (baseline is None or baseline.is_sound),
        stake=stake_of(spec, task.name, task.phase, candidate, history, nodes, is_repeat=task.round > 0),
    )


def _own_flag(spec: StudySpec) -> str | None:
    flag = spec.autotuning.arg_mappings.get(MICRO_BATCH)
    return None if flag is None else candidate_command(spec, None).script_value(flag)


def _varied(spec: StudySpec, candidate: Candidate | None) -> frozenset[str]:
    """The paths at which a candidate's settings are not those of the user's own configuration."""
    own = run_config(spec, None)
    values = {} if candidate is None else candidate.config_values
    return frozenset(path for path, value in values.items() if not is_own_value(own, path, value))


def _own_sizes(spec: StudySpec, shown: Observation | None, *, is_own: bool) -> OwnSizes:
    """Sizes of the user's own run, else of the first that ran; without any, what configuration and command say."""
    facts = shown.facts if shown else None
    if facts is not None:
        return OwnSizes(
            rows=facts.rows,
            micro_batch=facts.micro_batch,
            gas=facts.gas,
            elements=facts.elements,
            passes=facts.passes,
            step_elements=facts.step_elements,
            whose="your own run" if is_own else "an earlier run",
        )
    return OwnSizes(rows=0, micro_batch=own_size(spec, MICRO_BATCH), gas=own_size(spec, ACCUMULATION))


def prepare(assignment: Assignment, aio: Mapping[str, Any] | None) -> Launch:
    """Writes the files that describe an attempt, and returns its launch; `aio`: settings of NVMe offload."""
    spec, task, candidate = assignment.study.spec, assignment.task, assignment.candidate
    run_dir, attempt = assignment.run_dir, assignment.attempt
    # where it is not the metric, no second attempt fails for that
    is_counted = assignment.is_first and (task.name, task.round) == (BASELINE, 0)
    config = isolated_config(run_config(spec, candidate, aio), run_dir.own_path)
    command, plain = candidate_command(spec, candidate), plain_sizes(spec, task.name)
    command = isolated_command(command, spec.isolate, run_dir.own_path)
    if spec.simulation is None:
        give_own_swap(config, run_dir, attempt.id, Path(spec.cwd))
    else:
        run_dir.write_json(run_dir.simulation, _simulated(spec, spec.simulation, task, command, config))
    run_dir.write_json(run_dir.ds_config, config)
    launch = Launch(
        command=command.with_config(str(run_dir.ds_config)) if plain is None else command,
        cwd=Path(spec.cwd),
        run_dir=run_dir,
        devices=attempt.devices,
        port=attempt.port,
        placement=assignment.placement,
        memory_limit_bytes=spec.memory_per_device,
        start=spec.start,
        is_simulated=spec.is_simulated,
        plain=plain,
        pass_env=tuple(spec.pass_env),
        count_flops=spec.autotuning.metric == "FLOPS" or is_counted,
    )
    description = {
        "name": task.name,
        "round": task.round,
        "num_gpus": command.ranks if spec.is_simulated else len(attempt.devices.indices),
        "num_nodes": command.nodes,
        "result_dir": str(run_dir.path),
        "ds_config": config,
        "secret_variables": launch.secrets_given,
    }
    run_dir.write_json(run_dir.description, description)
    run_dir.write_json(exps_folder(spec) / f"{task.name}.json", description)
    return replace(launch, began_ns=began_ns(run_dir, Path(spec.cwd), spec.timeout_seconds))


def _simulated(
    spec: StudySpec, simulation: Simulation, task: Task, command: LaunchCommand, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The request to `dsopt.simulated`. A candidate's round is its launch, so that a study can be repeated exactly."""
    most_gpus, most_nodes = spec.most_resources
    return {
        "section": simulation.model_dump(mode="json", exclude_none=True),
        "gpus": simulation.gpus or most_gpus,
        "nodes": simulation.nodes or most_nodes,
        "run_gpus": command.ranks,
        "run_nodes": command.nodes,
        "ds_config": filled_in(config, command, spec.autotuning.arg_mappings),
        "checkpointing": is_on(command.script_switch(_CHECKPOINTING_FLAG)),
        "launch": task.round,
        "steps": max(spec.measurement.max_steps, spec.autotuning.end_profile_step) + 10,
    }
