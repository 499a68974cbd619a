"""The launcher's program and what it finds on PATH."""

import shutil
import sys
from pathlib import Path

import pytest

from dsopt.launch.program import path_with, python_of


@pytest.mark.parametrize(("where", "found"), [(("users", "venv"), "users"), (("venv",), "venv")])
def test_the_users_own_ninja_comes_first(tmp_path: Path, where: tuple[str, ...], found: str) -> None:
    for folder in where:
        ninja = tmp_path / folder / "ninja"
        ninja.parent.mkdir()
        ninja.touch(mode=0o755)
    path = path_with({"PATH": str(tmp_path / "users")}, tmp_path / "venv" / "deepspeed")
    assert shutil.which("ninja", path=path) == str(tmp_path / found / "ninja")


@pytest.mark.parametrize(
    ("first", "found"),
    [
        (f"#!{sys.executable}", sys.executable),
        ("#! /opt/my/python3.12 -E", "/opt/my/python3.12"),
        ("#!/usr/bin/env sh", None),
        ("#!/bin/sh", None),
        ("\x7fELF\udcff", None),
        ("", None),
    ],
)
def test_the_python_that_a_launcher_runs_with(tmp_path: Path, first: str, found: str | None) -> None:
    program = tmp_path / "deepspeed"
    program.write_bytes(f"{first}\nimport sys\n".encode(errors="surrogateescape"))
    assert python_of(program) == (Path(found) if found else None)
    (tmp_path / "python").touch()
    assert python_of(program) == Path(found or tmp_path / "python")
    assert python_of(tmp_path / "python") == tmp_path / "python"
