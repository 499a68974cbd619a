"""What determines the figures of a run, as far as a study says it. Two runs that agree in it need only one launch."""

import json

from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec


def same_run_key(spec: StudySpec, candidate: Candidate | None) -> str:
    """DeepSpeed's configuration and the command of a candidate's run, or of the user's own, as one text.

    It leaves out what differs for every run: the path of its configuration, port, devices, swap folder.
    """
    command = candidate_command(spec, candidate).with_config("ds_config.json")
    return json.dumps([run_config(spec, candidate), str(command)], sort_keys=True)


def other_conditions(one: StudySpec, other: StudySpec) -> list[str]:
    """The keys that affect the figures of every run, and in which two studies differ."""
    ours, theirs = _conditions(one), _conditions(other)
    return [key for key in ours if ours[key] != theirs[key]]


def _conditions(spec: StudySpec) -> dict[str, object]:
    tuning = spec.autotuning
    return {
        "cwd": spec.cwd,
        "simulation": (spec.simulation, spec.most_resources) if spec.is_simulated else None,
        "start": spec.start,
        "memory_per_device": spec.memory_per_device,
        # races, and how many runs there are, change no figure
        "measurement": spec.measurement.model_dump(exclude={"race"}),
        "start_profile_step and end_profile_step": (tuning.window, tuning.start_profile_step, tuning.end_profile_step),
    }
