"""Every benchmark can be imported: nothing that it needs has been renamed or deleted."""

import importlib
import pkgutil

import pytest

import benchmarks

OPTIONAL = {"playwright", "ray"}
NAMES = [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("__main__")])
def test_it_can_be_imported(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")
