"""Programs that people start trainings with but that are not launchers: what to give dsopt instead."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ADVICE: Final = (
    (
        "srun salloc sbatch",
        "Slurm starts it on each node, but dsopt starts the ranks itself. Start dsopt in the job, such as "
        "'srun --ntasks 1 dsopt tune -- deepspeed …'. For several nodes, use the deepspeed launcher with "
        "--hostfile and --launcher slurm.",
    ),
    (
        "mpirun mpiexec mpirun_rsh orterun prterun",
        "The deepspeed launcher calls it for you: 'deepspeed --hostfile FILE --launcher openmpi train.py …'.",
    ),
    (
        "ray kubectl docker podman singularity apptainer enroot",
        "Give the launch command that runs inside, and start dsopt there.",
    ),
    (
        "uv poetry conda mamba micromamba pixi pipenv pdm hatch",
        "Start dsopt in that environment instead, such as 'uv run dsopt tune -- deepspeed …'.",
    ),
    (
        "nohup time nice ionice exec setsid sudo timeout stdbuf taskset numactl caffeinate",
        "Leave it out, or put it in front of dsopt, such as 'nohup dsopt tune -- deepspeed …'.",
    ),
    ("bash sh zsh dash fish cd export source .", "No shell runs the command. Give the launch command itself."),
)


def advice_for(words: Sequence[str]) -> str:
    """What to give instead of a command that does not begin with a launcher; empty if dsopt does not know it."""
    program = Path(words[0]).name
    for programs, advice in _ADVICE:
        if program in programs.split():
            return f"{advice} "
    if program.endswith(".sh"):
        return "It is a shell script. Give the launch command that is in it. "
    if program.startswith("python") or program.endswith(".py"):
        return "It has no launcher. 'deepspeed --num_gpus 1 train.py …' starts the same script on one GPU. "
    return ""
