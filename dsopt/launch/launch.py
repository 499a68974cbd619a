"""What dsopt starts an attempt with: the user's own launcher, with the probe in front of the script."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsopt.launch.devices import DevicePool
from dsopt.launch.environment import (
    asked_for,
    known_secrets,
    only_passed,
    passed_on,
    secrets_given,
    variables_in,
    withheld,
)
from dsopt.launch.placement import Placement
from dsopt.protocol.private import write_private
from dsopt.protocol.run_dir import (
    BEGAN_VARIABLE,
    COUNT_FLOPS_VARIABLE,
    DEVICE_KIND_VARIABLE,
    MEMORY_LIMIT_VARIABLE,
    PLAIN_VARIABLE,
    RUN_DIR_VARIABLE,
    RunDir,
)
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import with_values
from dsopt.study.isolation import quiet_environment
from dsopt.study.spec import Start

_NODE_ENVIRONMENT_VARIABLE = "DS_ENV_FILE"  # deepspeed/launcher/constants.py
# what the launcher passes on to other nodes (EXPORT_ENVS of deepspeed/launcher/runner.py; `export_envs` for CUDA), and
# what decides which devices DeepSpeed takes
_EXPORTED = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "DS_ACCELERATOR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything needed to start one attempt.

    Attributes:
        command: the user's command with the candidate's script arguments and configuration path.
        cwd: folder that it starts in.
        run_dir: where its files go.
        devices: what it may use.
        port: the free port that its ranks meet at.
        memory_limit_bytes: cap on each rank's device memory, or None.
        count_flops: whether the probe counts floating-point operations.
        start: how ranks on this node start, if possible (`StudySpec.start`).
        is_simulated: whether it is a dry run, which starts `dsopt.simulated` instead of the command.
        plain: for a run without DeepSpeed, the micro-batch size and accumulation that its command says (0: it does
            not); None: DeepSpeed trains.
        pass_env: secret variables of the worker that the script needs (`StudySpec.pass_env`).
        placement: the nodes that dsopt itself starts it on; None: this node, or the launcher's choice.
        began_ns: when the first of the runs began that go on beside it (`beside.began_ns`); None: it is alone.
    """

    command: LaunchCommand
    cwd: Path
    run_dir: RunDir
    devices: DevicePool
    port: int
    memory_limit_bytes: int | None
    count_flops: bool = False
    start: Start = "launcher"
    is_simulated: bool = False
    plain: tuple[int, int] | None = None
    pass_env: tuple[str, ...] = ()
    placement: Placement | None = None
    began_ns: int | None = None

    def probed_command(self) -> LaunchCommand:
        """The command as dsopt starts it: with the probe before the script, its own port and the leased devices."""
        command = self.command.with_port(self.port)
        if self.devices.kind == "gpu" and self.is_local:
            command = self._on_leased_gpus(command)
        return command.with_module("dsopt.probe")

    @property
    def is_local(self) -> bool:
        """Whether all ranks are on this node."""
        return self.placement is None and not self.command.uses_hostfile

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The launcher's environment: the worker's without its secrets, the assignments in front of the command, and
        the run protocol's."""
        own = self._own_variables()
        assigned = dict(with_values(self.command, base).environment)
        environment = {**passed_on(base, self.command, self.pass_env), **assigned, **own}
        if self.command.uses_hostfile:
            everywhere = {**asked_for(base, self.pass_env), **own}
            environment[_NODE_ENVIRONMENT_VARIABLE] = str(self._write_node_environment(environment, everywhere))
        elif self.devices.kind == "gpu" and self.command.launcher.include:
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # the option names devices of the node
        elif self.devices.kind == "gpu":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self.devices.indices))
        return environment

    def node_variables(self, base: Mapping[str, str]) -> dict[str, str]:
        """What dsopt adds to a node's own environment there.

        What DeepSpeed's launcher passes on to other nodes, what the study asks for, the assignments in front of the
        command, and the run protocol's.
        """
        passed = passed_on(base, self.command, self.pass_env)
        exported = {name: value for name, value in passed.items() if name.startswith(_EXPORTED)}
        lines = only_passed(self._node_environment_lines(passed), self.command, self.pass_env)
        given = variables_in(lines)
        assigned = dict(with_values(self.command, base).environment)
        return {**exported, **given, **asked_for(base, self.pass_env), **assigned, **self._own_variables()}

    def _own_variables(self) -> dict[str, str]:
        """The run protocol's, and what keeps trackers quiet."""
        protocol = {RUN_DIR_VARIABLE: str(self.run_dir.path), DEVICE_KIND_VARIABLE: self.devices.kind}
        protocol["SPT_NOENV"] = "1"  # setproctitle overwrites the environment that shows which run a process is of
        if self.memory_limit_bytes:
            protocol[MEMORY_LIMIT_VARIABLE] = str(self.memory_limit_bytes)
        if self.count_flops:
            protocol[COUNT_FLOPS_VARIABLE] = "1"
        if self.began_ns is not None:
            protocol[BEGAN_VARIABLE] = str(self.began_ns)
        if self.plain is not None:
            protocol[PLAIN_VARIABLE] = "{},{}".format(*self.plain)
        if self.devices.kind == "gpu":
            protocol["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the driver's own order, which devices are leased by
        return {**quiet_environment(self.run_dir.path), **protocol}

    @property
    def secrets(self) -> list[str]:
        """What no message about the run may repeat."""
        return known_secrets(os.environ, self.command)

    @property
    def secrets_given(self) -> list[str]:
        """The secret variables that the run gets, of this worker or of the user's own files for other nodes."""
        assigned = dict(with_values(self.command, os.environ).environment)
        lines = [] if self.is_local else self._node_environment_lines({**os.environ, **assigned})
        return secrets_given({**variables_in(lines), **os.environ}, self.command, self.pass_env)

    @property
    def withheld(self) -> list[str]:
        """The secret variables of this worker that the run does not get."""
        return withheld(os.environ, self.command, self.pass_env)

    def _on_leased_gpus(self, command: LaunchCommand) -> LaunchCommand:
        launcher = command.launcher
        if not launcher.include:
            return command.with_ranks(len(self.devices.indices))
        indices = ",".join(map(str, self.devices.indices))
        kept = command.without_options(*launcher.ranks, *launcher.nodes, *launcher.devices)
        return kept.with_options(launcher.include[0], f"localhost:{indices}")

    def _write_node_environment(self, environment: Mapping[str, str], added: Mapping[str, str]) -> Path:
        """Writes the file from which DeepSpeed's launcher takes the variables of ranks on other nodes."""
        path = self.run_dir.node_environment
        lines = only_passed(self._node_environment_lines(environment), self.command, self.pass_env)
        lines += [f"{key}={value}" for key, value in added.items() if "\n" not in value]
        write_private(path, "\n".join(lines) + "\n")
        return path

    def _node_environment_lines(self, environment: Mapping[str, str]) -> list[str]:
        """The lines NAME=VALUE of the user's own such files."""
        name = environment.get(_NODE_ENVIRONMENT_VARIABLE, ".deepspeed_env")
        own = [folder / name for folder in (self.cwd, Path.home())]
        return [line for file in own if file.is_file() for line in file.read_text("utf-8").splitlines()]
