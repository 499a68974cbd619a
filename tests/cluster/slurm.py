"""A real Slurm on nodes of this machine: a controller on `head`, a slurmd on each other node, pretended GPUs."""

import contextlib
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.nodes import Daemon, Node, free_ports, need_nodes, need_programs, nodes, program, wait_until

CPUS, MEMORY_MIB = 8, 4000  # of a node, pretended
_GPU_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")  # Slurm only asks that they are devices
_CONF = """\
ClusterName=cluster
SlurmctldHost=head(127.0.0.2)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={sockets}/munge,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={sockets}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PlugStackConfig={folder}/plugstack.conf
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
KillWait=30
SchedulerParameters=sched_interval=1,bf_interval=1
"""
_LOG_LENGTH = 3000  # characters
_PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


class Slurm:
    """A cluster that runs.

    Attributes:
        folder: its configuration, state and logs.
        nodes: by name; `head` has the controller, jobs run on the others.
        environment: the variables with which `sbatch` and so on find it, from this machine and from its nodes.
        daemons: by node; that of `head` is the controller.
    """

    def __init__(self, folder: Path, found: dict[str, Node], ports: dict[str, int]) -> None:
        self.folder, self.nodes = folder, found
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, Daemon] = {}
        self._ports = ports

    def start(self, name: str) -> None:
        """Starts the controller on `head`, or the slurmd of another node."""
        command = [program("slurmctld"), "-D"] if name == "head" else [program("slurmd"), "-D", "-N", name]
        log = self.folder / f"{name}.log"
        self.daemons[name] = self.nodes[name].start(*command, log=log, environment=self.environment)

    def run(self, *command: str, seconds: float = 60, cwd: Path | None = None) -> str:
        """Runs one of Slurm's commands, checks that it succeeds, gives what it printed."""
        ended = subprocess.run(
            command, env={**os.environ, **self.environment}, cwd=cwd, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        )  # fmt: skip
        assert ended.returncode == 0, f"exit code {ended.returncode} of {command}:\n{ended.stdout}"
        return ended.stdout

    def submit(self, script: Path, *options: str) -> str:
        """Submits a script from its folder, and gives the number of its job."""
        return self.run("sbatch", "--parsable", *options, str(script), cwd=script.parent).strip()

    def state(self, job: str) -> str:
        """The state of a job, such as `RUNNING` or `COMPLETED`."""
        return self.job(job)["JobState"]

    def job(self, number: str) -> dict[str, str]:
        """What the controller knows of a job."""
        words = self.run("scontrol", "show", "job", "--oneliner", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, *states: str, seconds: float = 60) -> str:
        """Waits until a job is in one of these states, and gives that; else, the error has what Slurm says of it."""
        try:
            wait_until(lambda: self.state(job) in states, f"job {job} is {' or '.join(states)}", seconds)
        except TimeoutError as error:
            error.add_note(self.run("scontrol", "show", "job", job) + self.run("sinfo", "--long", "--Node"))
            for log in sorted(self.folder.glob("slurm*.log")):
                error.add_note(f"{log.name}:\n{log.read_text()[-_LOG_LENGTH:]}")
            raise
        return self.state(job)

    def node_state(self, name: str) -> str:
        """The state of a node, such as `idle`; one that does not answer has a `*` behind it."""
        return self.run("sinfo", "--noheader", "--nodes", name, "--format", "%T").strip()


@contextlib.contextmanager
def slurm(folder: Path, *names: str, gpus: int = 2) -> Iterator[Slurm]:
    """A Slurm with nodes of these names. All of it ends with the context.

    Args:
        folder: an empty one, for its configuration, state and logs.
        names: of the nodes that run jobs.
        gpus: that each of them says it has, at most four; jobs get `CUDA_VISIBLE_DEVICES`.
    """
    need_slurm()
    # paths of sockets may have 107 characters
    with tempfile.TemporaryDirectory(prefix="slurm-") as sockets, nodes(folder, "head", *names) as found:
        ports = dict(zip(found, free_ports(len(found)), strict=True))
        _configure(folder, Path(sockets), found, ports, gpus)
        made = Slurm(folder, found, ports)
        _start_munge(folder, Path(sockets), found["head"])
        for name in found:
            made.start(name)
        idle = "all nodes are idle"
        wait_until(lambda: {made.node_state(name) for name in names} == {"idle"}, idle)
        yield made


def need_slurm() -> None:
    """Skips a test where Slurm cannot run, and says why."""
    need_programs("slurmctld", "slurmd", "sbatch", package="slurm-wlm")
    need_programs("munged", package="munge")
    need_nodes()


def _configure(folder: Path, sockets: Path, found: dict[str, Node], ports: dict[str, int], gpus: int) -> None:
    user = os.environ.get("USER") or "root"
    text = _CONF.format(folder=folder, sockets=sockets, user=user, controller_port=ports["head"])
    for name, node in found.items():
        (sockets / name).mkdir()
        if name != "head":
            text += (
                f"NodeName={name} NodeHostname={name} NodeAddr={node.address} Port={ports[name]} "
                f"CPUs={CPUS} RealMemory={MEMORY_MIB} Gres=gpu:{gpus}\n"
            )
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(text + _PARTITION)
    (folder / "plugstack.conf").touch()
    (folder / "gres.conf").write_text("".join(f"Name=gpu File={file}\n" for file in _GPU_FILES[:gpus]))


def _start_munge(folder: Path, sockets: Path, head: Node) -> None:
    """Starts what tells Slurm's programs who asks."""
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    socket, files = sockets / "munge", {"pid-file": "pid", "seed-file": "seed", "log-file": "log"}
    options = [f"--{option}={folder}/munge.{ending}" for option, ending in files.items()]
    command = [program("munged"), "--foreground", "--force", f"--key-file={key}", f"--socket={socket}", *options]
    head.start(*command, log=folder / "munge.out")
    wait_until(socket.exists, "munged listens")
