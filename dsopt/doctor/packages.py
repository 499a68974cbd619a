"""The packages that training needs: whether they can be imported where the launcher trains."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dsopt.doctor.check import Check, ok, problem, warning
from dsopt.launch.devices import DevicePool
from dsopt.launch.training import Training, result_of
from dsopt.study.ds_config import get_path
from dsopt.study.spec import StudySpec

NAME: Final = "python-packages"
_LIMIT_SECONDS: Final = 180.0
_MODULE: Final = "dsopt.probe.installed"
# sections of DeepSpeed's configuration, and the packages that they report to
_MONITORS: Final = {"tensorboard": "tensorboard", "wandb": "wandb", "comet": "comet_ml"}


def check_packages(training: Training, spec: StudySpec | None, pool: DevicePool | None) -> Iterator[Check]:
    """dsopt, torch and DeepSpeed, by importing them; whether torch can use the GPUs; and what a training reports to.

    Experiments report to nothing, so they work without the last.
    """
    config = spec.own_config if spec is not None else {}
    monitors = [package for section, package in _MONITORS.items() if get_path(config, f"{section}.enabled") is True]
    program = training.program(_MODULE, *monitors, cwd=Path.cwd())
    ended = training.run(program, _LIMIT_SECONDS)
    found = result_of(ended)
    if found is None:
        yield _failed(training, ended.code, ended.last_words)
        return
    wrong = dict(found["failed"])
    for name, why in wrong.items():
        fix = f"{training.python} -m pip install {name}"
        if name in monitors:
            told = f"{training.python} cannot import {name}, which your configuration reports to: {why}"
            yield warning(NAME, f"{told}. Your training will fail, though experiments do not", fix)
        else:
            yield problem(NAME, f"{training.python} cannot import {name}: {why}", fix)
    if not wrong and pool is not None and pool.kind == "gpu":
        yield from _torch_and_gpus(found, training)
    if found["versions"]:
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        yield ok(NAME, f"{versions} ({training.python})")


def _failed(training: Training, code: int | None, words: str) -> Check:
    if code is None:
        return problem(
            NAME,
            f"{training.python}: importing torch and DeepSpeed takes more than {_LIMIT_SECONDS:.0f} seconds",
            "Look for a slow network file system, or a lock in torch's extension cache (build-locks)",
        )
    if "No module named 'dsopt" in words:
        return problem(
            NAME,
            f"dsopt is not installed in the environment that the command trains in ({training.python})",
            f"Install it there as it was installed here, with {training.python} -m pip install",
        )
    return problem(NAME, f"{training.python}: {words}", f"Find out why: {training.python} -c 'import torch, deepspeed'")


def _torch_and_gpus(found: dict[str, Any], training: Training) -> Iterator[Check]:
    """Problems of a torch that cannot use the GPUs that the driver shows."""
    if found["cuda"] is None:
        yield problem(
            NAME,
            f"this machine has GPUs, but torch {found['versions']['torch']} is built without CUDA",
            f"Install a torch with CUDA: {training.python} -m pip install --force-reinstall torch",
        )
    elif not found["gpus"]:
        yield problem(
            NAME,
            f"torch (CUDA {found['cuda']}) cannot use the GPUs that the driver shows: {found['trouble']}",
            "Compare the CUDA version with the one that nvidia-smi prints: the driver's must not be older",
        )
