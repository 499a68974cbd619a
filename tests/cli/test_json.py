"""What commands that change or work print with `--json`: one document on stdout, all else on stderr."""

import json
import tempfile

import pytest
import yaml

from tests.api.dry import dry_run
from tests.conftest import Dsopt
from tests.fork_server import Command


def apart(dsopt: Dsopt, *args: str, code: int = 0) -> tuple[str, str]:
    """What a command writes to stdout and to stderr."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command = Command(args, dsopt.cwd, dsopt.environment, (0, out.fileno(), err.fileno()))
        ended = command.wait(600)
        out.seek(0)
        err.seek(0)
        assert ended == code, err.read()
        return out.read(), err.read()


def data(dsopt: Dsopt, *args: str) -> dict:
    return json.loads(apart(dsopt, *args, "--json")[0])


@pytest.mark.slow
def test_a_study_by_json_alone(dsopt: Dsopt) -> None:
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd)))
    created = data(dsopt, "study", "create", "dry.yaml")
    assert (created["name"], created["is_new"], created["state"]) == ("dry", True, "created")
    assert data(dsopt, "study", "create", "dry.yaml")["is_new"] is False
    assert data(dsopt, "study", "stop", "dry") == {"name": "dry", "state": "stopped", "changed": True}
    assert data(dsopt, "study", "stop", "dry")["changed"] is False
    assert data(dsopt, "study", "resume", "dry") == {"name": "dry", "state": "created", "changed": True}
    out, err = apart(dsopt, "worker", "dry", "--devices", "cpu:1", "--json")
    [worked] = json.loads(out)["studies"]
    assert (worked["study"], worked["state"]) == ("dry", "finished")
    assert worked["comparison"]["best"] == "z1_gas1_tmbspg4"
    assert 0 < worked["worked_seconds"] <= worked["duration_seconds"] + 1
    assert "Working with 1 CPU slot" in err and "ZeRO 1 · 4 × 1 " in err
    assert data(dsopt, "study", "delete", "dry", "--yes") == {"name": "dry", "state": "deleted", "changed": True}
    assert data(dsopt, "worker") == {"studies": []}
    assert data(dsopt, "db", "upgrade")["revision"] == data(dsopt, "db", "check")["head"]


def test_tuning_by_json_alone(dsopt: Dsopt) -> None:
    """A configuration whose only candidate is itself: one run, and no training behind it."""
    content = dry_run(dsopt.cwd)
    (dsopt.cwd / "ds.json").write_text(json.dumps({**content["ds_config"], "train_micro_batch_size_per_gpu": [2]}))
    from tests.conftest import SCRIPTS

    (dsopt.cwd / "train.py").write_text("raise SystemExit('no script runs')\n")
    command = [str(SCRIPTS / "deepspeed"), "--num_gpus", "2", "train.py", "--deepspeed_config", "ds.json"]
    out, err = apart(dsopt, "tune", "--devices", "cpu:2", "--json", "--", *command)
    [tuned] = json.loads(out)["studies"]
    assert (tuned["study"], tuned["state"]) == ("train", "finished")
    assert "Created study 'train'" in err


def test_an_empty_list_says_where_it_looked(dsopt_at_first: Dsopt) -> None:
    out = dsopt_at_first("study", "list")
    assert f"There is no study yet in {dsopt_at_first.environment['DSOPT_STORAGE']}." in out
    assert "secret" not in dsopt_at_first("study", "list", "--storage", "postgresql://u:secret@127.0.0.1:1/d", code=1)
