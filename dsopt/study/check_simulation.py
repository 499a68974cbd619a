"""Refuses a dry run with nothing to simulate, or with runs on more GPUs and nodes than there are."""

from dsopt.errors import DsoptError
from dsopt.study.spec import StudySpec


def check_simulation(spec: StudySpec, where: str) -> None:
    """Refuses a dry run of nothing, and runs on more GPUs or nodes than there are.

    Raises:
        DsoptError: with the key that is missing or too small.
    """
    simulation = spec.simulation
    if simulation is None:
        if spec.launcher is not None:
            raise DsoptError(
                f"{where}: launcher: 'simulated' needs a section 'simulation' that says what to simulate. Expected gpu "
                "and model in it, such as {gpu: H100-80GB, model: llama-3-8b}."
            )
        return
    gpus, nodes = spec.most_resources
    if spec.resources.ranks is None or gpus is None:
        raise DsoptError(
            f"{where}: simulation.gpus: is missing, and the command does not say how many, either. "
            "Expected the number of GPUs of a node."
        )
    for key, there, asked in (("gpus", simulation.gpus, gpus), ("nodes", simulation.nodes, nodes)):
        if there is not None and asked > there:
            raise DsoptError(f"{where}: simulation.{key}: {there}, but a run asks for {asked}. Expected at least that.")
