"""DeepSpeed's own autotuner, its installed code, on a simulated or recorded machine.

Everything it decides is decided by its own code, and its experiments go through its own queue and files. Three things
are not its own: what launches an experiment (`scheduler.run_experiment` asks the machine instead of starting the
launcher), the memory of the device, and the clock, which does not really sleep.

As on real runs, its figure is one step, the forward, backward and optimizer part of it alone. In its favour, runs whose
name was run before are not counted (its own summary counts them), and a run's clean-up takes no time.
"""

import contextlib
import copy
import json
import random
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

from benchmarks.search.machine import DsConfig, Machine, concrete, seconds_to_first_step
from benchmarks.search.records import Journal, Record

TunerType = Literal["model_based", "gridsearch", "random"]
# the defaults of `start_profile_step` and `end_profile_step`; the engine exits after the latter, and its timers, which
# are reset at every step, then hold that one step alone (`DeepSpeedEngine._autotuning_exit`)
_LAST_STEP = 5
# a stage list, since without one the autotuner explores stage 0 alone, against its documents
_ALL_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedTuner:
    """A tuner for `benchmarks.search`.

    Attributes:
        tuner_type: DeepSpeed's `tuner_type`, which matters with `fast` off only.
        fast: DeepSpeed's `fast`.
        mended: whether experiments of the full mode get the host file that DeepSpeed 0.19 forgets and without which
            none of them is launched. What is compared with has to run.
    """

    tuner_type: TunerType = "model_based"
    fast: bool = True
    mended: bool = True

    @property
    def name(self) -> str:
        return "deepspeed" if self.mended else "deepspeed as installed"

    def tune(self, machine: Machine, seed: int) -> Record:
        """Tunes a machine from nothing. A tuner that raises has chosen nothing, as it does to its user.

        Args:
            machine: what to tune.
            seed: of the tuner's own random choices and of the numbers of its launches.
        """
        journal = Journal(machine, self.name)
        random.seed(seed)
        np.random.seed(seed)
        with tempfile.TemporaryDirectory(prefix="deepspeed-autotuner-") as folder:
            experiments = _Experiments(machine, journal, first_launch=1000 * seed, mended=self.mended)
            with _in_place_of_launches(experiments):
                try:
                    choice = _tuned(machine, self._config(machine, Path(folder)), Path(folder))
                except Exception as error:
                    said = f"{type(error).__name__}: {error}".replace(f"{folder}/", "")  # a name of chance
                    return journal.close(None, error=said)
        return journal.close(choice)

    def _config(self, machine: Machine, folder: Path) -> dict[str, Any]:
        """The user's configuration with autotuning on; the product of the batch sizes crashes its first run."""
        tuning = {
            "enabled": True,
            "fast": self.fast,
            "tuner_type": self.tuner_type,
            "results_dir": str(folder / "results"),
            "exps_dir": str(folder / "exps"),
        }
        if machine.max_train_batch_size is not None:
            tuning["max_train_batch_size"] = machine.max_train_batch_size
        base = concrete(machine.baseline)
        zero = {**base.get("zero_optimization", {}), "stage": list(_ALL_STAGES)}
        return {**base, "zero_optimization": zero, "autotuning": tuning}


def _tuned(machine: Machine, config: Mapping[str, Any], folder: Path) -> DsConfig | None:
    """Runs the autotuner as `deepspeed.launcher.runner.run_autotuning` does; the configuration it writes, if any."""
    from deepspeed.autotuning import Autotuner

    class OnMachine(Autotuner):  # type: ignore[misc]
        def get_gpu_memory_info(self) -> int:
            return machine.facts.device_memory_bytes

    path = folder / "ds_config.json"
    path.write_text(json.dumps(config))
    args = Namespace(
        user_script="train.py",
        user_args=["--deepspeed_config", str(path)],
        hostfile="hostfile",
        master_port=29500,
        num_nodes=-1,
        num_gpus=-1,
        autotuning="tune",
    )
    slots = list(range(machine.facts.gpus_per_node))
    tuner = OnMachine(args, {f"worker-{node}": slots for node in range(machine.facts.nodes)})
    tuner.tune()
    tuner.write_optimal_config()
    chosen: DsConfig | None = tuner.optimal_ds_config
    return chosen


class _Experiments:
    """Launches of the autotuner's scheduler, answered by a machine."""

    def __init__(self, machine: Machine, journal: Journal, *, first_launch: int, mended: bool) -> None:
        self._machine = machine
        self._journal = journal
        self._launch = first_launch
        self._mended = mended

    def run(self, experiment: dict[str, Any], *_: object) -> None:
        """Stands for `scheduler.run_experiment`: leaves the files that a real experiment would have left."""
        config = experiment["ds_config"]
        tuning = config["autotuning"]
        if "hostfile" not in experiment and not self._mended:
            # DeepSpeed's own line raises KeyError here, in a thread; the scheduler then finds no stderr.log
            self._journal.add(config, "search", "failed", None, _noticed(0.0))
            return
        folder = Path(experiment["result_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ds_config.json").write_text(json.dumps(config))
        (folder / "cmd.txt").write_text("deepspeed train.py\n")
        is_profile = "model_info_path" in tuning
        run = self._machine.run(concrete(config), self._launch)
        self._launch += 1
        started = seconds_to_first_step(run, "launcher", self._machine.facts.nodes)
        if run.oom is not None:
            (folder / "stderr.log").write_text(f"torch.OutOfMemoryError: {run.oom}\n")
            self._journal.add(config, "profile" if is_profile else "search", "oom", None, _noticed(started))
            return
        (folder / "stderr.log").touch()
        if is_profile:  # its engine exits after the first forward pass
            self._write_model_info(Path(tuning["model_info_path"]), run.activation_bytes)
            self._journal.add(config, "profile", "measured", None, _noticed(started))
            return
        inside = run.forward_seconds + run.backward_seconds + run.optimizer_seconds
        seconds = float(run.step_seconds[_LAST_STEP]) * inside / run.true_step_seconds
        throughput = run.samples_per_step / seconds
        metrics = {
            "latency": 1000 * seconds,
            "FLOPS_per_gpu": run.flops_per_step / seconds,
            "throughput": throughput,
        }
        Path(tuning["metric_path"]).write_text(json.dumps(metrics))
        taken = started + float(run.step_seconds[: _LAST_STEP + 1].sum())
        self._journal.add(config, "search", "measured", throughput, _noticed(taken))

    def _write_model_info(self, path: Path, activation_bytes: int) -> None:
        info = {
            "num_params": self._machine.facts.params,
            "trainable_num_params": self._machine.facts.trainable_params,
            "activation_mem_per_gpu": activation_bytes,
        }
        path.write_text(json.dumps(info))


def _noticed(seconds: float) -> float:
    """When the next experiment can start after one of so many seconds.

    `ResourceManager.experiment_check` waits up to five seconds for it to end, sleeps five, and so on; it sees the end
    when it next waits, and sleeps five more.
    """
    from deepspeed.autotuning.scheduler import TIMEOUT

    rounds, within = divmod(seconds, 2 * TIMEOUT)
    seen = seconds if within <= TIMEOUT else (rounds + 1) * 2 * TIMEOUT
    return float(seen + TIMEOUT)


@contextlib.contextmanager
def _in_place_of_launches(experiments: _Experiments) -> Iterator[None]:
    """Puts the machine where the autotuner launches and sleeps, and keeps it from printing and from MLflow.

    The autotuner writes what it learns into its own constants, which a process of its own would drop with itself; here
    each run begins with a copy of them.
    """
    from deepspeed.autotuning import autotuner, scheduler
    from deepspeed.utils import logger

    clock = Namespace(time=time.time, sleep=lambda _seconds: None)
    bar = Namespace(update=lambda _count: None)
    spaces = {name: value for name, value in vars(autotuner).items() if name.startswith("DEFAULT_TUNING_SPACE")}
    was_disabled, logger.disabled = logger.disabled, True
    try:
        with (
            mock.patch.multiple(autotuner, **copy.deepcopy(spaces), has_mlflow=False),
            mock.patch.multiple(scheduler, run_experiment=experiments.run, time=clock, tqdm=lambda **_: bar),
        ):
            yield
    finally:
        logger.disabled = was_disabled
