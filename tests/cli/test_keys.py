"""Signed studies: a node with keys runs what one of them has signed, and nothing else."""

import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import dsopt
from dsopt.api.keys import sign_study
from dsopt.cli.main import dsopt as command
from dsopt.errors import DsoptError
from dsopt.store import engine, keys, queries
from dsopt.store.signatures import check_trust_now
from dsopt.store.studies import Store
from dsopt.store.tables import new_id, studies
from dsopt.store.url import storage_url
from tests.api.dry import dry_run
from tests.conftest import Dsopt, make_cache
from tests.store.ledger import spec


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
    connected = engine.connect(storage_url(dsopt.environment["DSOPT_STORAGE"]))
    with connected.begin() as connection:
        connection.execute(sa.text(statement), values)
    connected.dispose()


def test_a_node_with_keys_runs_only_what_one_of_them_has_signed(dsopt: Dsopt) -> None:
    creator, worker = node(dsopt, "creator"), node(dsopt, "worker")
    write_study(dsopt)
    creator("study", "create", "dry.yaml")
    made = creator.json("key", "create", "--name", "first")
    wanted = rf"{made['fingerprint']} ('first')"
    refused = creator("worker", "dry", "--devices", "cpu:1", code=1)
    assert "study 'dry' is not signed" in refused and wanted in refused

    creator("study", "create", "dry.yaml")  # the same study once more: whoever has its file vouches for it
    copy_key("first", creator, worker)
    worker.json("key", "create", "--name", "own")  # a node may trust several
    assert "Study 'dry' is finished." in worker("worker", "dry", "--devices", "cpu:1")

    stranger = node(dsopt, "stranger")
    stranger("key", "create", "--name", "other")
    refused = stranger("worker", "dry", "--devices", "cpu:1", code=1)
    assert f"is signed with key {made['fingerprint']}, which this node does not trust" in refused
    assert "is finished" in node(dsopt, "no-keys")("worker", "dry", "--devices", "cpu:1")


@pytest.mark.parametrize("forges_digest", [False, True])
def test_an_altered_spec_is_refused(dsopt: Dsopt, forges_digest: bool) -> None:
    """Without keys the digest tells it, which whoever alters a spec on purpose can alter as well; a signature not."""
    dsopt = node(dsopt, "creator")
    if forges_digest:
        dsopt("key", "create")
    write_study(dsopt)
    dsopt("study", "create", "dry.yaml")
    change(dsopt, "UPDATE dsopt_studies SET spec = replace(spec, 'no-such-script.py', 'evil.py')")
    if forges_digest:
        change(dsopt, "UPDATE dsopt_studies SET digest = :digest", digest=digest_of_stored(dsopt))
    for words in (["worker", "dry", "--devices", "cpu:1"], ["study", "best", "dry"], ["study", "create", "dry.yaml"]):
        refused = dsopt(*words, code=1)
        is_told = "was altered in the database" in refused or "exists with a different spec" in refused
        assert is_told and "dsopt study delete dry" in refused
    dsopt("study", "delete", "dry", "--yes")
    dsopt("study", "create", "dry.yaml")


def test_to_look_at_a_study_and_to_stop_it_needs_no_trust(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOPT_STORAGE", sqlite_url)
    dsopt.create_study(dry_run(tmp_path, autotuning={"results_dir": "results"})).close()
    monkeypatch.setenv("DSOPT_KEYS", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir()
    keys.create_key()
    study = dsopt.load_study("dry")
    assert study.distrust is not None and study.distrust in CliRunner().invoke(command, ["study", "show", "dry"]).output
    assert "dry" in study.text() and study.runs == [] and study.summary.sentence()
    assert study.stop() and study.resume()
    for act in (study.run, study.find_best, study.train, lambda: study.import_results(tmp_path)):
        with pytest.raises(DsoptError, match="study 'dry' is not signed"):
            act()
    assert study.runs == [] and not (tmp_path / "results").exists()
    assert study.stop()
    study.delete()
    study.close()


@pytest.mark.parametrize("place", ["file", "dangling", "loop", "empty"])
def test_what_may_hide_keys_is_not_taken_for_a_node_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Such a node ran what nobody had signed, without a word."""
    folder = tmp_path / "dsopt" / "keys"
    folder.parent.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert keys.trusted_keys() == []
    match place:
        case "file":
            folder.touch()
        case "dangling":
            folder.symlink_to("not-mounted")
        case "loop":
            folder.symlink_to(folder)
        case "empty":
            folder.mkdir()
            assert keys.trusted_keys() == []
            monkeypatch.setenv("DSOPT_KEYS", str(folder))
    with pytest.raises(DsoptError, match=f"{folder}.*dsopt key create"):
        keys.trusted_keys()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up what root may do")
def test_keys_that_this_user_may_not_see_are_not_taken_for_none(dsopt: Dsopt) -> None:
    folder = dsopt.cwd / "keys"
    dsopt.environment["DSOPT_KEYS"] = str(folder)
    dsopt("key", "create")
    folder.chmod(0o300)
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    command = [*drop, sys.executable, "-m", "dsopt", "key", "list"]
    done = subprocess.run(command, env=dsopt.environment, cwd=dsopt.cwd, capture_output=True, text=True)
    assert done.returncode == 1 and f"{folder}: Permission denied" in done.stderr, done


def test_a_signature_holds_for_the_very_study_that_was_signed(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write to the database gives a study that was created anew the signed spec of its predecessor."""
    monkeypatch.setenv("DSOPT_KEYS", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir()
    keys.create_key()
    store = Store.open(sqlite_url, make=True)
    kept = ("name", "spec", "digest", "signature", "signed_by")
    store.create(spec("s"))
    with store.engine.begin() as connection:
        signed = {key: queries.find_study(connection, "s")[key] for key in kept}
    store.delete(store.get("s"))
    with store.engine.begin() as connection:
        connection.execute(sa.insert(studies).values(id=new_id(), state="created", version=0, created_at=1.0, **signed))
    with pytest.raises(DsoptError, match="study 's' was altered in the database after it was signed"):
        store.get("s")
    store.close()


def test_a_study_that_an_earlier_version_signed_is_to_be_signed_again(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOPT_KEYS", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir()
    key = keys.create_key()
    store = Store.open(sqlite_url, make=True)
    stored, _ = store.create(spec("s"))
    message = json.dumps(["dsopt study, version 1", "s", stored.spec.to_json()]).encode()
    earlier = hmac.new(key.secret, message, hashlib.sha256).hexdigest()
    with store.engine.begin() as connection:
        connection.execute(sa.update(studies).values(signature=earlier))
    with pytest.raises(DsoptError, match=r"'s' was signed by an earlier dsopt.*dsopt key sign s --unsigned"):
        store.get("s")
    store.close()


def digest_of_stored(dsopt: Dsopt) -> str:
    from dsopt.study.spec import digest_of

    connected = engine.connect(storage_url(dsopt.environment["DSOPT_STORAGE"]))
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
    assert "Signed study 'dry'" in creator("key", "sign", "dry", "--unsigned", "--yes")


def test_all_that_somebody_vouches_for_is_shown_first(dsopt: Dsopt) -> None:
    """Who can write to the database chooses the folder and the variables, too, not only the command."""
    creator = node(dsopt, "creator")
    script = f"train.py --hub_token hf_{'S3cret' * 6} --deepspeed_config ds.json"
    words = f"MY_PASSWORD=pw0rd9secret deepspeed --num_gpus 8 {script}"
    content = dry_run(dsopt.cwd, command=words, pass_env=["AWS_*"])
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(content))
    creator("study", "create", "dry.yaml")
    creator("key", "create", "--name", "new")
    output = creator("key", "sign", "dry", "--unsigned", code=130)
    assert output.index(f'"cwd": "{dsopt.cwd}"') < output.index("sign 'dry'?")
    assert "MY_PASSWORD='***' deepspeed --num_gpus 8 train.py --hub_token '***'" in output and "AWS_*" in output
    assert "is not signed" in creator("worker", "dry", code=1)
    signed = creator("key", "sign", "dry", "--unsigned", "--yes") + creator("key", "sign", "dry", "--json")
    assert "pw0rd9" not in output + signed and "S3cret" not in output + signed
    creator("worker", "dry", "--devices", "cpu:1")


@pytest.mark.parametrize(
    "command",
    [
        "PYTHONPATH=/tmp/sk-evilevilevil deepspeed t.py",
        "deepspeed /tmp/hf_aaaaaaaaaaaa/t.py",
        "deepspeed token=aaaaaaaa/evil.py /tmp",
        "deepspeed t.py",
    ],
)
def test_nobody_vouches_for_what_he_cannot_see(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A path may have the form of a token: it would be hidden."""
    monkeypatch.setenv("DSOPT_STORAGE", sqlite_url)
    cwd = tmp_path if "/tmp" in command else tmp_path / "hf_bbbbbbbbbbbb"
    cwd.mkdir(exist_ok=True)
    words = f"{command.replace('deepspeed', 'deepspeed --num_gpus 8')} --deepspeed_config ds.json"
    dsopt.create_study(dry_run(cwd, command=words)).close()
    monkeypatch.setenv("DSOPT_KEYS", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir()
    keys.create_key()
    with pytest.raises(DsoptError, match="looks like a secret"):
        sign_study("dry", unsigned=True, agree=lambda _: None)
    assert dsopt.load_study("dry").distrust is not None


def test_what_is_signed_is_what_was_shown(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOPT_STORAGE", sqlite_url)
    dsopt.create_study(dry_run(tmp_path)).close()
    monkeypatch.setenv("DSOPT_KEYS", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir()
    keys.create_key()

    def alters(_: str) -> None:
        here = Dsopt(tmp_path, sqlite_url)
        change(here, "UPDATE dsopt_studies SET spec = replace(spec, 'no-such-script.py', 'evil.py')")
        change(here, "UPDATE dsopt_studies SET digest = :digest", digest=digest_of_stored(here))

    with pytest.raises(DsoptError, match="'dry' was changed while you read it"):
        sign_study("dry", unsigned=True, agree=alters)
    assert (distrust := dsopt.load_study("dry").distrust) is not None and "not signed" in distrust
    assert "evil.py" in sign_study("dry", unsigned=True).command


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
    path.unlink()
    os.mkfifo(path, 0o600)
    assert f"key {path}: is not a file" in creator("key", "list", code=1)


def test_shared_storage_without_keys_is_told_once(dsopt: Dsopt) -> None:
    told = "whoever can write to this database can make its workers run any command"
    creator = node(dsopt, "creator")
    is_shared = creator.environment["DSOPT_STORAGE"].startswith("postgres")
    creator.environment["XDG_CACHE_HOME"] = str(make_cache(dsopt.cwd / "cache"))
    write_study(dsopt)
    assert (told in creator("study", "create", "dry.yaml")) == is_shared
    assert told not in creator("study", "create", "dry.yaml")
    assert told not in creator("worker", "dry", "--devices", "cpu:1")


def test_a_study_that_was_read_without_keys_is_checked_as_soon_as_there_are_some(
    dsopt: Dsopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    creator, worker = node(dsopt, "creator"), node(dsopt, "worker")
    key = creator.json("key", "create", "--name", "prod")
    write_study(dsopt)
    worker("study", "create", "dry.yaml")
    change(dsopt, "UPDATE dsopt_studies SET signature = :forged, signed_by = :key", forged="00", key=key["fingerprint"])
    monkeypatch.setenv("XDG_CONFIG_HOME", worker.environment["XDG_CONFIG_HOME"])
    monkeypatch.delenv("DSOPT_KEYS", raising=False)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    study = store.read("dry")
    check_trust_now(store.engine, study)
    monkeypatch.setenv("XDG_CONFIG_HOME", creator.environment["XDG_CONFIG_HOME"])
    with pytest.raises(DsoptError, match="was altered in the database after it was signed"):
        check_trust_now(store.engine, study)
    store.close()
