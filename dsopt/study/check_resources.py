"""Whether a study's command can run on the GPUs and nodes that the study asks for."""

from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.study.check_command import check_command
from dsopt.study.spec import StudySpec


def check_resources(spec: StudySpec, where: str) -> list[str]:
    """Checks the command with every number of nodes that the study tries; warns if it leaves out a host file."""
    filtered = next((name for name in spec.launch.launcher.devices if spec.launch.option(name) is not None), None)
    if filtered is not None and spec.autotuning.num_gpus is not None:
        raise DsoptError(
            f"{where}: autotuning.num_gpus: {spec.autotuning.num_gpus}: the command chooses its devices with "
            f"{filtered}. Keep one of the two."
        )
    warnings = [
        f"{where}: autotuning.{key}: {given}: all runs use that many, your own too, although the command says {typed}"
        for key, given, typed in (
            ("num_gpus", spec.autotuning.num_gpus, spec.launch.option(*spec.launch.launcher.ranks)),
            ("num_nodes", spec.autotuning.num_nodes, spec.launch.option(*spec.launch.launcher.nodes)),
        )
        if isinstance(given, int) and typed is not None and str(given) != typed
    ]
    cwd, given = Path(spec.cwd), spec.autotuning.num_nodes
    check_command(spec.resources, cwd, where, is_simulated=spec.is_simulated)
    for nodes in given if isinstance(given, list) else []:
        check_command(spec.resources.with_nodes(nodes), cwd, where, is_simulated=spec.is_simulated)
    if spec.resources.hostfile != spec.launch.hostfile:
        warnings.append(
            f"{where}: command: dsopt leaves out --hostfile {spec.launch.hostfile}: a run on one node starts on the "
            "worker's own node; start a worker on each node"
        )
    return warnings
