"""What cannot be hidden of what a run was given: whoever shows its log has to know."""

import base64
from pathlib import Path

import pytest

from dsopt.protocol.run_dir import RunDir
from dsopt.report.secrets import without_secrets
from dsopt.report.secrets_of_runs import secrets_of_runs, unhidden
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


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path, "z0")


def hides(study: StudySpec, text: str, secret: str) -> bool:
    return secret not in without_secrets(f"it says {text} here", secrets_of_runs(study))


@pytest.mark.parametrize("how", ["command", "pass_env"])
def test_a_variable_is_known_where_it_is_set_and_hidden_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch, run: RunDir, how: str
) -> None:
    study = asking("--tok $MY_TOKEN") if how == "command" else asking(pass_env=["MY_TOKEN"])
    assert unhidden(study, run) == ["MY_TOKEN"]
    monkeypatch.setenv("MY_TOKEN", "abc")  # too short to be searched for everywhere
    assert unhidden(study, run) == ["MY_TOKEN"]
    monkeypatch.setenv("MY_TOKEN", VALUE)
    assert unhidden(study, run) == []
    written = base64.b64encode(VALUE.encode()).decode()
    for text, secret in ((VALUE, "51f2"), ("?a=odd%2F51f2%2Bval%20ue", "51f2"), (written, written[:16])):
        assert hides(study, text, secret), text


def test_a_value_is_a_secret_whatever_its_variables_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_REGION", "mysql://bob:pw51%2Ff2@db/x")
    for names in (["ACME_REGION"], ["ACME_*"]):
        assert hides(asking(pass_env=names), "user bob with pw51/f2", "pw51")
    monkeypatch.setenv("ACME_REGION", "nothing-looks-secret")
    assert hides(asking(pass_env=["ACME_REGION"]), "nothing-looks-secret", "looks")


def test_of_a_pattern_the_runs_folder_lists_what_it_was_given(monkeypatch: pytest.MonkeyPatch, run: RunDir) -> None:
    study = asking(pass_env=["ACME_*", "*"])
    monkeypatch.setenv("ACME_TOKEN", "a1b2c3d4e5f6g7h8")
    monkeypatch.setenv("DSOPT_STORAGE", "postgresql://bob:pw51f2@db/x")
    assert unhidden(study, run) == ["ACME_*", "*"]  # another shell may have had others
    run.write_json(run.description, {"secret_variables": ["ACME_TOKEN", "MY_TOKEN"]})
    assert unhidden(study, run) == ["MY_TOKEN"]
    run.description.write_text("[")
    assert unhidden(study, run) == ["ACME_*", "*"]


def test_what_a_comparison_runs_is_asked_too(run: RunDir) -> None:
    assert unhidden(asking(), run) == []
    other = "deepspeed --num_gpus 2 t.py --tok $MY_TOKEN --deepspeed_config c.json"
    study = asking(compare=[{"name": "other", "command": other}])
    assert unhidden(study, run) == ["MY_TOKEN"]
