"""The command that a candidate runs with."""

from dsopt.study.command import LaunchCommand
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, Candidate
from dsopt.study.spec import StudySpec


def candidate_command(spec: StudySpec, candidate: Candidate | None) -> LaunchCommand:
    """The user's command with the candidate's resources and script arguments; as typed for the user's own."""
    command = spec.resources
    if candidate is None:
        return command
    ranks, nodes = candidate.resource(NUM_GPUS), candidate.resource(NUM_NODES)
    command = command if nodes is None else command.with_nodes(nodes)
    command = command if ranks is None else command.with_ranks(ranks)
    values = {MICRO_BATCH: candidate.micro_batch, ACCUMULATION: candidate.gas}
    for key, flag in spec.autotuning.arg_mappings.items():
        command = command.with_script_value(flag, str(values[key]))
    for flag, value in candidate.script_flags.items():
        command = command.with_script_switch(flag, None if value is None else str(value))
    return command
