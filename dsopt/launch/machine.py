"""The versions and devices of this machine, without importing the packages."""

import importlib.metadata
import platform

from dsopt.errors import DsoptError
from dsopt.launch.gpus import driver_version, installed_gpus

_PACKAGES = (
    "dsopt", "torch", "deepspeed", "transformers", "accelerate", "optuna", "optuna-dashboard", "xgboost", "sqlalchemy",
    "psycopg", "alembic", "numpy", "pydantic",
)  # fmt: skip


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
    """Name and memory of each GPU, with the driver's version, or why they cannot be used; empty without GPUs."""
    try:
        return [
            f"{gpu}, driver {driver_version()}" + (f"; {gpu.fault}" if gpu.fault else "") for gpu in installed_gpus()
        ]
    except DsoptError as error:
        return [str(error)]
