"""What a dry run simulates, in words."""

from dsopt.study.spec import StudySpec


def simulated(spec: StudySpec) -> str | None:
    """What a dry run simulates; None for real runs."""
    if spec.simulation is None:
        return None
    gpu, model = spec.simulation.gpu.name or "GPUs", spec.simulation.model.name or "a model"
    return f"{model} on {(spec.resources.ranks or 1) * spec.resources.nodes} simulated {gpu}"
