"""`dsopt trial`: one run of a study, and its logs."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import dsopt
from dsopt.api.storage import opened
from dsopt.api.who_works import _labels
from dsopt.cli.main import dsopt as command
from tests.api.dry import dry_run


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("trial")
    url = f"sqlite:///{folder}/dsopt.db"
    made = dsopt.create_study(dry_run(folder), storage=url)
    made.run("cpu:1")
    made.close()
    return url


def run(url: str, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(command, [*words, "--storage", url])
    assert result.exit_code == code, result.output
    return result.output or str(result.exception)


def test_a_run_is_shown_with_what_came_of_it(url: str) -> None:
    text = run(url, "trial", "show", "dry", "z1_gas1_tmbspg4", "--round", "0")
    assert text.startswith("ZeRO 1 · 4 × 1: measured\nname: z1_gas1_tmbspg4\nmetric: ")
    assert "memory: " in text and "files: " in text
    assert re.search(
        r"^launched \d times: [0-9.]+ in round 0, [0-9.]+ in round 1",
        run(url, "trial", "show", "dry", "baseline"),
        re.M,
    )
    assert json.loads(run(url, "trial", "show", "dry", "baseline", "--json"))["round"] >= 1  # the last one


@pytest.mark.parametrize("name", ["ZeRO 1 · 4 × 1", "zero 1 4 x 1", "z1_gas1_tmbspg4"])
def test_a_run_is_found_by_what_screens_call_it(url: str, name: str) -> None:
    assert json.loads(run(url, "trial", "show", "dry", name, "--json"))["candidate"] == "z1_gas1_tmbspg4"
    assert "A dry run starts no training, so nothing was written." in run(url, "trial", "logs", "dry", name)
    assert json.loads(run(url, "trial", "show", "dry", "your configuration", "--json"))["candidate"] == "baseline"


def test_its_logs_are_the_last_lines_without_control_characters(url: str) -> None:
    folder = Path(json.loads(run(url, "trial", "show", "dry", "baseline", "--round", "0", "--json"))["run_dir"])
    (folder / "stdout.log").write_text("first\nsecond\n\x1b[31mthird\n")
    text = run(url, "trial", "logs", "dry", "baseline", "--round", "0", "-n", "2")
    assert text.startswith("==> stdout.log, the last 2 lines (-n shows more) <==\nsecond\n")
    assert "first" not in text and "\x1b" not in text and "third" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dry", "z1_gas1_tmbspg5"], "Did you mean 'z1_gas1_tmbspg4'?"),
        (["dry", "nothing-like-it"], "See: dsopt study show dry --why"),
        (["dry", "baseline", "--round", "9"], "has no run of 'baseline' in round 9"),
    ],
)
def test_a_run_that_is_not_there_is_said(url: str, words: list[str], said: str) -> None:
    assert said in run(url, "trial", "show", *words, code=1)


def test_a_misspelt_command_gets_the_nearest() -> None:
    result = CliRunner().invoke(command, ["dashbord"])
    assert result.exit_code == 2
    assert "No such command 'dashbord'. Did you mean 'dashboard'?" in result.output
    result = CliRunner().invoke(command, ["list"])
    assert "No such command 'list'. Did you mean 'study list'?" in result.output


def test_the_list_of_workers_calls_a_run_what_other_screens_call_it(url: str) -> None:
    """It reads what runs alone: reading all of a study's trials takes a second when there are thousands."""
    with opened(url) as store:
        known = _labels(store, "dry", ["baseline", "z1_gas1_tmbspg4"])
        assert known == {"baseline": "your configuration", "z1_gas1_tmbspg4": "ZeRO 1 · 4 × 1"}
        assert _labels(store, "deleted meanwhile", ["baseline"]) == {}
