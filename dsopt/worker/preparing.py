"""From a task to a launch: the files that describe a run, and when it has said enough."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsopt.experiment.launch import Launch
from dsopt.experiment.outcome import PASSES
from dsopt.experiment.results import exps_folder
from dsopt.experiment.run import RunRules
from dsopt.experiment.rundir import RunDir
from dsopt.experiment.swap import give_own_swap
from dsopt.search.history import History
from dsopt.store.attempts import Attempt, Task
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec


def rules_of(spec: StudySpec, candidate: Candidate | None, history: History) -> RunRules:
    """When a run has said enough, and what it must agree with."""
    tuning = spec.autotuning
    baseline = history.find("baseline")
    own = baseline.facts if baseline else None
    return RunRules(
        measurement=spec.measurement,
        window=tuning.window,
        floor=(tuning.start_profile_step, tuning.end_profile_step),
        timeout_seconds=spec.timeout_seconds,
        expected=candidate,
        needs_flops=tuning.metric == "FLOPS",
        needs_pass=tuning.metric if tuning.metric in PASSES else None,
        own_rows=(own.rows, own.micro_batch) if own else None,
    )


def prepare(
    spec: StudySpec,
    task: Task,
    candidate: Candidate | None,
    run_dir: RunDir,
    attempt: Attempt,
    aio: Mapping[str, Any] | None,
) -> Launch:
    """Writes the files that describe an attempt and gives its launch."""
    config = run_config(spec, candidate, aio)
    give_own_swap(config, run_dir, attempt.id, Path(spec.cwd))
    run_dir.write_json(run_dir.ds_config, config)
    command = candidate_command(spec, candidate)
    description = {
        "name": task.name,
        "round": task.round,
        "num_gpus": len(attempt.devices.indices),
        "num_nodes": command.nodes,
        "result_dir": str(run_dir.path),
        "ds_config": config,
    }
    run_dir.write_json(run_dir.description, description)
    run_dir.write_json(exps_folder(spec) / f"{task.name}.json", description)
    return Launch(
        command=command.with_config(str(run_dir.ds_config)),
        cwd=Path(spec.cwd),
        run_dir=run_dir,
        devices=attempt.devices,
        port=attempt.port,
        memory_limit_bytes=spec.memory_per_device,
        is_direct=spec.start == "direct",
        count_flops=spec.autotuning.metric == "FLOPS" or (task.name, task.round) == ("baseline", 0),
    )
