"""What a GPU machine is, and what dsopt's warm starts rest on: what importing a training's libraries leaves behind."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from dsopt.launch.gpus import driver_version, installed_gpus

_LIBRARIES: Final = ("torch", "deepspeed", "transformers", "bitsandbytes", "transformer_engine", "flash_attn")
_LONGEST_IMPORT: Final = 120.0
# run in a program of its own: open files, threads, and whether a fork could still use CUDA
_LOOK: Final = """
import importlib, json, os, sys, time
began = time.monotonic()
try:
    importlib.import_module(sys.argv[1])
except Exception as error:
    print(json.dumps({"failed": repr(error)}))
    sys.exit()
import torch
print(json.dumps({
    "seconds": round(time.monotonic() - began, 2),
    "open_files": sorted({os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                          if os.path.exists(f"/proc/self/fd/{fd}")}),
    "threads": sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")),
    "cuda_is_initialized": torch.cuda.is_initialized(),
    "cuda_is_bad_fork": bool(getattr(torch.cuda, "_is_in_bad_fork", lambda: False)()),
}))
"""


def write(folder: Path, seconds: float) -> None:
    """Writes `facts.json`, again after each fact: what is found first is there if the rest is cut off.

    Args:
        folder: where.
        seconds: no library is imported for longer than what is left of this.
    """
    ends = time.monotonic() + seconds
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "imports": {}}

    def keep() -> None:
        (folder / "facts.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    for name, look in (("gpus", _gpus), ("torch", _torch)):
        try:
            found[name] = look()
        except Exception as error:  # whatever is missing there: the other facts are worth the hour
            found[name] = {"error": repr(error)}
        keep()
    for library in _LIBRARIES:
        told = _imported(library, min(_LONGEST_IMPORT, ends - time.monotonic()))
        if told is not None:
            found["imports"][library] = told
        keep()


def _gpus() -> dict[str, Any]:
    found = installed_gpus()
    told = [{"name": gpu.name, "bytes": gpu.memory_bytes, "fault": gpu.fault, "users": gpu.users} for gpu in found]
    return {"driver": driver_version(), "found": told}


def _torch() -> dict[str, Any]:
    import torch

    told: dict[str, Any] = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        told |= {"device": torch.cuda.get_device_name(), "free": free, "total": total}
    return told


def _imported(name: str, seconds: float) -> dict[str, Any] | None:
    """What the import of a library leaves behind; None: it is not installed."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    if seconds <= 0:
        return {"version": version, "failed": "no time was left"}
    command = [sys.executable, "-c", _LOOK, name]
    environment = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
        return {"version": version, **json.loads(done.stdout.splitlines()[-1])}
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"version": version, "failed": repr(error)}
