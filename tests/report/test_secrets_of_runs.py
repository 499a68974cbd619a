"""What cannot be hidden of what a run was given: whoever shows its log has to know."""

import pytest

from dsopt.report.secrets import secrets_of_runs, unknown_variables, without_secrets
from dsopt.study.spec import StudySpec
from tests.made_up import spec

VALUE = "odd/51f2+val ue"


def asking(command: str = "", **keys: object) -> StudySpec:
    content = spec().model_dump(exclude_unset=True)
    return StudySpec.model_validate({**content, "command": f"{content['command']} {command}".strip(), **keys})


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_TOKEN", "ACME_TOKEN", "ACME_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_a_variable_is_known_where_it_is_set_and_hidden_however_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    study = asking("--tok $MY_TOKEN", pass_env=["MY_TOKEN"])
    assert unknown_variables(study) == ["MY_TOKEN"]
    monkeypatch.setenv("MY_TOKEN", "abc")  # too short to be searched for everywhere
    assert unknown_variables(study) == ["MY_TOKEN"]
    monkeypatch.setenv("MY_TOKEN", VALUE)
    assert unknown_variables(study) == []
    log = without_secrets(f"{VALUE} and ?a=odd%2F51f2%2Bval%20ue", secrets_of_runs(study))
    assert "51f2" not in log


def test_a_pattern_is_known_by_what_looks_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    study = asking(pass_env=["ACME_*"])
    monkeypatch.setenv("ACME_REGION", "eu-west-1")
    assert unknown_variables(study) == ["ACME_*"]
    monkeypatch.setenv("ACME_TOKEN", "a1b2c3d4e5f6g7h8")
    assert unknown_variables(study) == []


def test_what_a_comparison_runs_is_asked_too() -> None:
    assert unknown_variables(asking()) == []
    other = "deepspeed --num_gpus 2 t.py --tok $MY_TOKEN --deepspeed_config c.json"
    study = asking(compare=[{"name": "other", "command": other}])
    assert unknown_variables(study) == ["MY_TOKEN"]
