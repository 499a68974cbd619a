"""What the linter of Dockerfiles and the schema of Compose say of `docker/`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.files import DOCKER


def check(name: str, *args: str | Path) -> None:
    """Runs a checker, which `make install` puts beside Python."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip(f"{name} is not installed here")
    done = subprocess.run([found, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    check("hadolint", DOCKER / "Dockerfile")


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_compose_files_fit_their_schema(name: str) -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / name)
