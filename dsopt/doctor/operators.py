"""DeepSpeed's own operators, which it compiles before their first use: whether those of a configuration build."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.doctor.check import Check, ok, problem, skipped
from dsopt.launch.devices import DevicePool
from dsopt.launch.leftovers import extensions_cache
from dsopt.launch.training import Training, result_of
from dsopt.study.ds_config import get_path, offload_devices
from dsopt.study.spec import StudySpec

NAME: Final = "operators"
_LIMIT_SECONDS: Final = 600.0  # for each
_MODULE: Final = "dsopt.probe.builds"
# what the engine makes of `optimizer.type`: with its states on the GPU, and with them on the host
_ADAM: Final = ("FusedAdamBuilder", "CPUAdamBuilder")
_OPTIMIZERS: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "adam": _ADAM,
    "adamw": _ADAM,
    "adagrad": (None, "CPUAdagradBuilder"),
    "lamb": ("FusedLambBuilder", "FusedLambBuilder"),
    "lion": ("FusedLionBuilder", "CPULionBuilder"),
}


def check_operators(training: Training, spec: StudySpec | None, pool: DevicePool | None) -> Iterator[Check]:
    """Builds the operators that a study needs, or loads them if they are built, in a folder that goes away."""
    if pool is None:
        yield skipped(NAME, "the devices cannot be used")
        return
    needed = needed_operators(spec.own_config if spec is not None else {}, pool.kind)
    if not needed:
        yield skipped(NAME, "the configuration needs none that has to be compiled")
    for builder in needed:
        with tempfile.TemporaryDirectory(prefix="dsopt-doctor-") as folder:
            yield _build(training, builder, Path(folder))


def needed_operators(config: Mapping[str, Any], device: str) -> list[str]:
    """DeepSpeed's builders of the operators that a configuration needs on a kind of device (`gpu` or `cpu`)."""
    needed = ["ShareMemCommBuilder"] if device == "cpu" else []
    optimizer = str(get_path(config, "optimizer.type") or "").lower()
    states, params = offload_devices(config)
    if get_path(config, "optimizer.params.torch_adam") is not True or optimizer not in ("adam", "adamw"):
        found = _OPTIMIZERS.get(optimizer, (None, None))[states != "none"]
        needed += [found] if found is not None else []
    return [*needed, "AsyncIOBuilder"] if "nvme" in (states, params) else needed


def _build(training: Training, builder: str, folder: Path) -> Check:
    name = builder.removesuffix("Builder")
    program = training.program(_MODULE, builder, str(extensions_cache()), cwd=folder, TORCH_EXTENSIONS_DIR=str(folder))
    ended = training.run(program, _LIMIT_SECONDS)
    found = result_of(ended)
    if found is not None:
        if found["was_built"]:
            return ok(NAME, f"{found['operator']} is built, and can be loaded")
        return ok(NAME, f"{found['operator']} can be built, in {found['seconds']:.0f} s; the first run does that")
    if ended.code is None:
        return problem(NAME, f"{name} is not built after {_LIMIT_SECONDS:.0f} seconds", "Try again on an idle machine")
    words = _reason(ended.errors) or ended.last_words
    return problem(NAME, f"{name} cannot be built: {words}", _remedy(builder, ended.errors, training))


def _reason(errors: str) -> str:
    """The compiler's first error, if there is one: what follows it only repeats that it failed."""
    lines = [line.strip() for line in errors.splitlines()]
    return next((line for line in lines if ": error:" in line or ": fatal error:" in line), "")


def _remedy(builder: str, errors: str, training: Training) -> str:
    path = training.environment.get("PATH")
    if "ninja" in errors.lower() and shutil.which("ninja", path=path) is None:
        return f"{training.python} -m pip install ninja"
    if not any(shutil.which(compiler, path=path) for compiler in (training.environment.get("CXX", "c++"), "g++")):
        return "Install a C++ compiler, such as with: apt-get install g++"
    if builder == "AsyncIOBuilder":
        return "Install libaio with its headers, such as with: apt-get install libaio-dev"
    if "torch_adam" not in errors and builder in _ADAM:
        return 'Set CXX to a compiler that works, or "torch_adam": true in optimizer.params, which needs none'
    return "Set CXX (or CUDA_HOME for GPUs) to a compiler that works with this torch"
