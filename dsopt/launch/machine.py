"""The versions and devices of this machine, without importing the packages."""

import importlib.metadata
import platform
import shutil
import subprocess

_PACKAGES = (
    "dsopt", "torch", "deepspeed", "transformers", "accelerate", "optuna", "optuna-dashboard", "xgboost", "sqlalchemy",
    "psycopg", "alembic", "numpy", "pydantic",
)  # fmt: skip
_TIMEOUT_SECONDS = 20.0


def versions() -> dict[str, str]:
    """The versions of dsopt, Python, the system and the packages that matter, or "not installed"."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def gpus() -> list[str]:
    """Name, memory and driver of each GPU from `nvidia-smi`; empty without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    fields = "name,memory.total,driver_version,compute_cap"
    try:
        done = subprocess.run(
            [program, f"--query-gpu={fields}", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
