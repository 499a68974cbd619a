"""What an attempt is started with: the user's own launcher with the probe in front of the script."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.experiment.devices import DevicePool
from dsopt.experiment.learned import LearnedStarts
from dsopt.experiment.rundir import (
    COUNT_FLOPS_VARIABLE,
    MEMORY_LIMIT_VARIABLE,
    PLAIN_VARIABLE,
    RUN_DIR_VARIABLE,
    RunDir,
)
from dsopt.experiment.shared import SharedRanks, SharedSetting
from dsopt.experiment.warm import WarmStarter
from dsopt.study.command import LaunchCommand
from dsopt.study.isolation import QUIET

_NODE_ENVIRONMENT_VARIABLE = "DS_ENV_FILE"  # deepspeed/launcher/constants.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything needed to start one attempt.

    Attributes:
        command: the user's command with the candidate's script arguments and configuration path.
        cwd: folder it is started in.
        run_dir: where its files go.
        devices: what it may use.
        port: the free port its ranks meet at.
        memory_limit_bytes: cap on each rank's device memory, or None.
        count_flops: whether the probe counts floating-point operations.
        is_direct: whether ranks are started without the launcher, where that is the same (`direct.py`).
        is_simulated: whether it is a dry run, of `dsopt.simulated` in place of all of the command.
        learned: tells how a launcher other than DeepSpeed's starts ranks, once it was seen; or None.
        warm: forks the ranks, where they could be started directly and it is able to; or None.
        shared: where ranks that are forked stay after the run, and which may take over this one; or None.
        setting: what a run must have in common with this one to be given its ranks; None: they end with it.
        plain: of a run without DeepSpeed, micro-batch size and accumulation as far as its command says them (0: it
            does not); None: DeepSpeed trains.
    """

    command: LaunchCommand
    cwd: Path
    run_dir: RunDir
    devices: DevicePool
    port: int
    memory_limit_bytes: int | None
    count_flops: bool = False
    is_direct: bool = False
    is_simulated: bool = False
    learned: LearnedStarts | None = None
    warm: WarmStarter | None = None
    shared: SharedRanks | None = None
    setting: SharedSetting | None = None
    plain: tuple[int, int] | None = None

    def probed_command(self) -> LaunchCommand:
        """The command as it is started: probe before the script, own port, leased devices."""
        command = self.command.with_port(self.port)
        if self.devices.kind == "gpu" and not command.uses_hostfile:
            command = self._on_leased_gpus(command)
        return command.with_module("dsopt.probe")

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The launcher's environment: the worker's, the assignments in front of the command, and the run protocol's."""
        protocol = {RUN_DIR_VARIABLE: str(self.run_dir.path)}
        if self.memory_limit_bytes:
            protocol[MEMORY_LIMIT_VARIABLE] = str(self.memory_limit_bytes)
        if self.count_flops:
            protocol[COUNT_FLOPS_VARIABLE] = "1"
        if self.plain is not None:
            protocol[PLAIN_VARIABLE] = "{},{}".format(*self.plain)
        environment = {**base, **dict(self.command.environment), **QUIET, **protocol}
        if self.command.uses_hostfile:
            everywhere = {**QUIET, **protocol}
            environment[_NODE_ENVIRONMENT_VARIABLE] = str(self._write_node_environment(environment, everywhere))
        elif self.devices.kind == "gpu" and self.command.launcher.kind == "deepspeed":
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # `--include` names devices of the node
        elif self.devices.kind == "gpu":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self.devices.indices))
        return environment

    def _on_leased_gpus(self, command: LaunchCommand) -> LaunchCommand:
        launcher = command.launcher
        if launcher.kind != "deepspeed":
            return command.with_ranks(len(self.devices.indices))
        indices = ",".join(map(str, self.devices.indices))
        kept = command.without_options(*launcher.ranks, *launcher.nodes, *launcher.devices)
        return kept.with_options("--include", f"localhost:{indices}")

    def _write_node_environment(self, environment: Mapping[str, str], added: Mapping[str, str]) -> Path:
        """The file from which the deepspeed launcher takes the variables of ranks on other nodes."""
        path = self.run_dir.path / "node_environment"
        name = environment.get(_NODE_ENVIRONMENT_VARIABLE, ".deepspeed_env")
        own = [folder / name for folder in (self.cwd, Path.home())]
        lines = [file.read_text("utf-8").rstrip("\n") for file in own if file.is_file()]
        lines += [f"{key}={value}" for key, value in added.items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def find_launcher(name: str, cwd: Path) -> Path:
    """The launcher program: on PATH, beside the Python that runs dsopt, or at its path, seen from `cwd`.

    Raises:
        DsoptError: it is in neither place.
    """
    beside = Path(sys.executable).parent
    if os.sep in name:
        found = shutil.which(str(cwd / name))
    else:
        found = shutil.which(name) or shutil.which(name, path=str(beside))
    if found is None and os.sep in name:
        raise DsoptError(f"command: the launcher '{name}' is not there, or is no program. Check its path.")
    if found is None:
        raise DsoptError(
            f"command: the launcher '{name}' is neither on PATH nor in {beside}. "
            "Install DeepSpeed there ('pip install deepspeed'), or activate its environment."
        )
    return Path(found)
