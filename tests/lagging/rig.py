"""A machine whose GPUs are devices that lag: a driver's library that tells of them, and DeepSpeed's accelerator."""

import os
import subprocess
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


def build_nvml(folder: Path) -> Path:
    """Builds what stands in for the driver's library; `NVML_STUB` names the file that it reads."""
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library]
    subprocess.run([*command, _HERE / "nvml_stub.c"], check=True)
    return library


def gpu_line(name: str, *users: int, error: int = 0, sliced: int = 0, memory_bytes: int = 80 * 2**30) -> str:
    """A GPU, as the file tells of it."""
    return f"{error} GPU-{name * 4}-1 H200 {memory_bytes} {sliced} {' '.join(map(str, users))}"


def accelerator(gib: float) -> dict[str, str]:
    """What the environment of a rank says, so that DeepSpeed trains it on a device that lags, of so many GiB."""
    return {"PYTHONPATH": str(_HERE / "start"), "LAGGING_GIB": str(gib)}


def machine(folder: Path, *, gpus: int, gib: float) -> dict[str, str]:
    """The environment of a machine with such GPUs."""
    build_nvml(folder)
    file = folder / "gpus"
    file.write_text("\n".join(["0", *(gpu_line("abcdefgh"[n], memory_bytes=int(gib * 2**30)) for n in range(gpus))]))
    return {"LD_LIBRARY_PATH": str(folder), "NVML_STUB": str(file), **accelerator(gib)}


def is_lagging() -> bool:
    """Whether this process's environment is of such a machine."""
    return "LAGGING_GIB" in os.environ
