"""Refuses a dry run of nothing, of what it cannot simulate, or on more GPUs and nodes than there are."""

from dsopt.errors import DsoptError
from dsopt.study.spec import StudySpec


def check_simulation(spec: StudySpec, where: str) -> None:
    """Refuses a dry run of nothing or of model parallelism, and runs on more GPUs or nodes than there are.

    Raises:
        DsoptError: with the key that is missing, too small or cannot be simulated.
    """
    simulation = spec.simulation
    if simulation is None:
        if spec.launcher is not None:
            raise DsoptError(
                f"{where}: launcher: 'simulated' needs a section 'simulation' that says what to simulate. Expected gpu "
                "and model in it, such as {gpu: H100-80GB, model: llama-3-8b}."
            )
        return
    if spec.autotuning.mp_size > 1:
        raise DsoptError(
            f"{where}: autotuning.mp_size: {spec.autotuning.mp_size}, but a dry run simulates data parallelism alone. "
            "Expected 1 beside a section 'simulation'."
        )
    gpus, nodes = spec.most_resources
    if spec.resources.ranks is None or gpus is None:
        raise DsoptError(
            f"{where}: simulation.gpus: is missing, and the command does not say how many, either. "
            "Expected the number of GPUs of a node."
        )
    for key, there, asked in (("gpus", simulation.gpus, gpus), ("nodes", simulation.nodes, nodes)):
        if there is not None and asked > there:
            raise DsoptError(f"{where}: simulation.{key}: {there}, but a run asks for {asked}. Expected at least that.")
