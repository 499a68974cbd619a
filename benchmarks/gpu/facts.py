"""What a GPU machine is, and what dsopt's warm starts rest on: what importing a training's libraries leaves behind."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.launch.gpus import driver_version, installed_gpus

_LIBRARIES: Final = ("torch", "deepspeed", "transformers", "bitsandbytes", "transformer_engine", "flash_attn")
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


def facts() -> dict[str, Any]:
    """Everything, as JSON."""
    return {"date": time.strftime("%Y-%m-%d"), "gpus": _gpus(), "torch": _torch(), "imports": _imports()}


def write(folder: Path) -> None:
    """Writes `facts.json`."""
    (folder / "facts.json").write_text(json.dumps(facts(), indent=1) + "\n", encoding="utf-8")


def _gpus() -> dict[str, Any]:
    try:
        found = installed_gpus()
        told = [{"name": gpu.name, "bytes": gpu.memory_bytes, "fault": gpu.fault, "users": gpu.users} for gpu in found]
        return {"driver": driver_version(), "found": told}
    except DsoptError as error:
        return {"error": str(error)}


def _torch() -> dict[str, Any]:
    import torch

    told: dict[str, Any] = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        told |= {"device": torch.cuda.get_device_name(), "free": free, "total": total}
    return told


def _imports() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _LIBRARIES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        command = [sys.executable, "-c", _LOOK, name]
        environment = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
            found[name] = {"version": version, **json.loads(done.stdout.splitlines()[-1])}
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            found[name] = {"version": version, "failed": repr(error)}
    return found
