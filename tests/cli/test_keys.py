"""Signed studies: a node with keys runs what one of them has signed, and nothing else."""

import json
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.store import engine
from tests.api.dry import dry_run
from tests.conftest import Dsopt


def node(dsopt: Dsopt, name: str) -> Dsopt:
    """The command on another node: with keys and a cache of its own."""
    other = Dsopt(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    other.environment |= {"XDG_CONFIG_HOME": str(dsopt.cwd / name), "DSOPT_KEYS": ""}
    return other


def keys_of(dsopt: Dsopt) -> Path:
    return Path(dsopt.environment["XDG_CONFIG_HOME"]) / "dsopt" / "keys"


def copy_key(name: str, source: Dsopt, target: Dsopt) -> None:
    keys_of(target).mkdir(parents=True, exist_ok=True)
    copy = keys_of(target) / f"{name}.key"
    copy.write_bytes((keys_of(source) / f"{name}.key").read_bytes())
    copy.chmod(0o600)


def write_study(dsopt: Dsopt) -> None:
    content = dry_run(dsopt.cwd, confirmation={"finalists": 1, "rounds": 1})
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(content))


def change(dsopt: Dsopt, statement: str, **values: str) -> None:
    connected = engine.connect(engine.storage_url(dsopt.environment["DSOPT_STORAGE"]))
    with connected.begin() as connection:
        connection.execute(sa.text(statement), values)
    connected.dispose()


def test_a_node_with_keys_runs_only_what_one_of_them_has_signed(dsopt_on: Dsopt) -> None:
    creator, worker = node(dsopt_on, "creator"), node(dsopt_on, "worker")
    write_study(dsopt_on)
    creator("study", "create", "dry.yaml")
    made = creator.json("key", "create", "--name", "first")
    wanted = rf"{made['fingerprint']} ('first')"
    refused = creator("worker", "dry", "--devices", "cpu:1", code=1)
    assert "study 'dry' is not signed" in refused and wanted in refused

    creator("study", "create", "dry.yaml")  # the same study once more: whoever has its file vouches for it
    copy_key("first", creator, worker)
    worker.json("key", "create", "--name", "own")  # a node may trust several
    assert "Study 'dry' is finished." in worker("worker", "dry", "--devices", "cpu:1")

    stranger = node(dsopt_on, "stranger")
    stranger("key", "create", "--name", "other")
    refused = stranger("worker", "dry", "--devices", "cpu:1", code=1)
    assert f"is signed with key {made['fingerprint']}, which this node does not trust" in refused
    assert "is finished" in node(dsopt_on, "no-keys")("worker", "dry", "--devices", "cpu:1")


@pytest.mark.parametrize("forges_digest", [False, True])
def test_an_altered_spec_is_refused(dsopt_on: Dsopt, forges_digest: bool) -> None:
    """Without keys the digest tells it, which whoever alters a spec on purpose can alter as well; a signature not."""
    dsopt = node(dsopt_on, "creator")
    if forges_digest:
        dsopt("key", "create")
    write_study(dsopt)
    dsopt("study", "create", "dry.yaml")
    change(dsopt, "UPDATE dsopt_studies SET spec = replace(spec, 'no-such-script.py', 'evil.py')")
    if forges_digest:
        change(dsopt, "UPDATE dsopt_studies SET digest = :digest", digest=digest_of_stored(dsopt))
    for command in (["worker", "dry", "--devices", "cpu:1"], ["study", "show", "dry"], ["study", "create", "dry.yaml"]):
        refused = dsopt(*command, code=1)
        is_told = "was altered in the database" in refused or "exists with a different spec" in refused
        assert is_told and "dsopt study delete dry" in refused
    dsopt("study", "delete", "dry", "--yes")
    dsopt("study", "create", "dry.yaml")


def digest_of_stored(dsopt: Dsopt) -> str:
    from dsopt.study.spec import digest_of

    connected = engine.connect(engine.storage_url(dsopt.environment["DSOPT_STORAGE"]))
    with connected.connect() as connection:
        spec = connection.execute(sa.text("SELECT spec FROM dsopt_studies")).scalar_one()
    connected.dispose()
    return digest_of(json.loads(spec))


def test_keys_are_changed_without_stopping(dsopt: Dsopt) -> None:
    creator, worker = node(dsopt, "creator"), node(dsopt, "worker")
    write_study(dsopt)
    old = creator.json("key", "create", "--name", "old")
    copy_key("old", creator, worker)
    creator("study", "create", "dry.yaml")
    new = creator.json("key", "create", "--name", "new")
    assert [(key["name"], key["signs"]) for key in creator.json("key", "list")] == [("old", False), ("new", True)]
    creator.environment["DSOPT_SIGNING_KEY"] = "old"  # until the new one is on each node
    assert [key["signs"] for key in creator.json("key", "list")] == [True, False]
    del creator.environment["DSOPT_SIGNING_KEY"]
    copy_key("new", creator, worker)
    assert f"Signed study 'dry' with key {new['fingerprint']}" in creator("key", "sign", "dry")
    for each in (creator, worker):
        (keys_of(each) / "old.key").unlink()
    assert "simulated" in worker("study", "show", "dry")
    copy_key("new", creator, worker)
    change(dsopt, "UPDATE dsopt_studies SET signed_by = :old", old=old["fingerprint"])
    assert "does not trust" in creator("key", "sign", "dry", code=1)
    assert "It runs: deepspeed --num_nodes 2" in creator("key", "sign", "dry", "--unsigned")


def test_a_key_that_others_can_read_is_refused(dsopt: Dsopt) -> None:
    creator = node(dsopt, "creator")
    assert "accepts every study" in creator("key", "list")
    assert "this node has no key" in creator("key", "sign", "dry", code=1)
    creator("key", "create", "--name", "one")
    path = keys_of(creator) / "one.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["secret"] not in creator("key", "list")
    assert "there is a key 'one' already" in creator("key", "create", "--name", "one", code=1)
    assert "Expected up to 64 letters" in creator("key", "create", "--name", "../one", code=1)
    path.chmod(0o640)
    write_study(dsopt)
    assert f"other users can use it. Correct that with: chmod 600 '{path}'" in creator("key", "list", code=1)
    assert "chmod 600" in creator("study", "create", "dry.yaml", code=1)
    path.chmod(0o600)
    path.write_text("{}")
    assert "is not a key of dsopt, or is damaged" in creator("key", "list", code=1)


def test_shared_storage_without_keys_is_told_once(dsopt_on: Dsopt) -> None:
    told = "whoever can write to this database can make its workers run any command"
    creator = node(dsopt_on, "creator")
    is_shared = creator.environment["DSOPT_STORAGE"].startswith("postgres")
    cache = dsopt_on.cwd / "cache" / "dsopt"
    cache.mkdir(parents=True)
    known = Path.home() / ".cache" / "dsopt"
    for file in known.glob("*.json"):  # what DeepSpeed reads, which takes long to find out
        (cache / file.name).write_bytes(file.read_bytes())
    creator.environment["XDG_CACHE_HOME"] = str(cache.parent)
    write_study(dsopt_on)
    assert (told in creator("study", "create", "dry.yaml")) == is_shared
    assert told not in creator("study", "create", "dry.yaml")
    assert told not in creator("worker", "dry", "--devices", "cpu:1")
