"""The command that a candidate runs with."""

from dsopt.study.command import LaunchCommand
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.study.spec import StudySpec


def candidate_command(spec: StudySpec, candidate: Candidate | None) -> LaunchCommand:
    """The user's command with the script's mapped arguments set to the candidate's; as typed for the user's own."""
    command = spec.launch
    if candidate is None:
        return command
    values = {MICRO_BATCH: candidate.micro_batch, ACCUMULATION: candidate.gas}
    for key, flag in spec.autotuning.arg_mappings.items():
        command = command.with_script_value(flag, str(values[key]))
    return command
