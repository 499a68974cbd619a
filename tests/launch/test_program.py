"""The launcher's program and what it finds on PATH."""

import shutil
from pathlib import Path

import pytest

from dsopt.launch.program import path_with


@pytest.mark.parametrize(("where", "found"), [(("users", "venv"), "users"), (("venv",), "venv")])
def test_the_users_own_ninja_comes_first(tmp_path: Path, where: tuple[str, ...], found: str) -> None:
    for folder in where:
        ninja = tmp_path / folder / "ninja"
        ninja.parent.mkdir()
        ninja.touch(mode=0o755)
    path = path_with({"PATH": str(tmp_path / "users")}, tmp_path / "venv" / "deepspeed")
    assert shutil.which("ninja", path=path) == str(tmp_path / found / "ninja")
