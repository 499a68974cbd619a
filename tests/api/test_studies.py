"""Studies as a program has them: created, found, worked on, asked for their result, deleted."""

import contextlib
import math
import re
import sys
from pathlib import Path

import optuna
import pytest
import yaml

import dsopt
from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.store.studies import Store
from dsopt.store.workers import beat, register
from tests.api.dry import COMMAND, dry_run


@pytest.fixture
def url(storage_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The storage that is meant when none is named; the working directory is empty."""
    monkeypatch.setenv("DSOPT_STORAGE", storage_url)
    monkeypatch.chdir(tmp_path)
    return storage_url


def test_from_create_to_best(url: str, tmp_path: Path) -> None:
    assert dsopt.list_studies() == []
    study = dsopt.create_study(dry_run(tmp_path))
    assert (study.name, study.state, study.is_new, study.is_comparison) == ("dry", "created", True, False)
    assert study.spec.stages == (1,)
    assert not study.spec.compare and study.runs == [] and study.model is None
    with pytest.raises(DsoptError, match="has no result yet: its state is 'created'"):
        _ = study.best
    with pytest.raises(DsoptError, match="is not finished"):
        study.write_files()
    assert study.summary.state == "created"

    events = list(study.work("cpu:1"))
    kinds = {type(event) for event in events}
    assert {dsopt.events.TaskStarted, dsopt.events.TaskEnded, dsopt.events.StudyFinished} <= kinds
    assert isinstance(events[0], dsopt.events.StudyProgressed)
    assert isinstance(events[-1], dsopt.events.StudyFinished)
    assert study.state == "finished"

    best = study.best
    assert (best.name, best.unit, best.is_own) == ("z1_gas1_tmbspg4", "samples/s", False)
    assert best.factor is not None and best.interval is not None
    assert best.interval[0] < best.factor < best.interval[1]
    assert best.ds_config["train_micro_batch_size_per_gpu"] == 4
    assert best.config_file == tmp_path / "autotuning_results" / "ds_config_optimal.json"
    assert str(best.config_file) in best.command
    assert list(best.files) == list(events[-1].files) == study.write_files()
    assert str(best) == study.summary.sentence()
    assert [change.key for change in study.diff().changes] == ["train_micro_batch_size_per_gpu"]
    assert list(study.work("cpu:1")) == []  # nothing is left to do
    assert study.find_best(output=tmp_path / "mine.json").config_file == tmp_path / "mine.json"
    with pytest.raises(DsoptError, match="has a summary, not a table"):
        _ = study.table


def test_the_best_command_says_what_goes_in_place_of_a_secret(url: str, tmp_path: Path) -> None:
    command = [*COMMAND, "--api_key", "planted-4711"]
    study = dsopt.create_study(dry_run(tmp_path, command=command))
    list(study.work("cpu:1"))
    best = study.best
    assert "--api_key '***'" in best.command and "planted-4711" not in str(best)
    assert "In place of *** goes what you typed there: dsopt shows no secret." in best.advice


def test_a_study_is_found_again_stopped_resumed_and_deleted(url: str, tmp_path: Path) -> None:
    dsopt.create_study(dry_run(tmp_path))
    study = dsopt.load_study("dry")
    assert [known.name for known in dsopt.list_studies()] == ["dry"]
    assert not dsopt.create_study(dry_run(tmp_path)).is_new
    assert study.stop("for a test") and not study.stop()
    assert (study.state, study.summary.note) == ("stopped", "for a test")
    assert list(study.work("cpu:1")) == []
    assert study.resume() and not study.resume()
    with pytest.raises(DsoptError, match=r"exists with a different spec[^$]*--name dry-2 --take-over dry"):
        dsopt.create_study(dry_run(tmp_path, timeout_seconds=7))
    (tmp_path / "other").mkdir()
    with pytest.raises(DsoptError, match=r"--name dry-2\nThat is the study of another folder"):
        dsopt.create_study(dry_run(tmp_path / "other"))  # a take-over would be refused
    study.delete()
    assert study.state == "deleted"
    with pytest.raises(DsoptError, match="no study 'dry'"):
        dsopt.load_study("dry")
    again = dsopt.create_study(dry_run(tmp_path))
    again.run("cpu:1")
    assert again.state == "finished"
    dsopt.delete_study("dry")
    assert dsopt.list_studies() == []


def is_killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_what_an_interrupted_creation_left_may_have_another_metric(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dsopt.store.queries.insert_study", is_killed)
        with pytest.raises(KeyboardInterrupt):
            dsopt.create_study(dry_run(tmp_path))
    assert dsopt.create_study(dry_run(tmp_path, autotuning={"metric": "latency"})).is_new
    with contextlib.closing(Store.open(url)) as store:
        found = optuna.get_all_study_summaries(store.optuna_storage)
        assert {part.direction for part in found} == {optuna.study.StudyDirection.MINIMIZE}
        part = optuna.load_study(study_name="dry/z1", storage=store.optuna_storage)
        assert part.metric_names == ["latency (ms/step)"]


def test_an_earlier_studys_files_are_set_aside_though_a_creation_was_interrupted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dsopt.create_study(dry_run(tmp_path))
    first.run("cpu:1")
    first.delete()
    with monkeypatch.context() as patch:
        patch.setattr("dsopt.api.creating.set_aside_earlier", is_killed)
        with pytest.raises(KeyboardInterrupt):
            dsopt.create_study(dry_run(tmp_path))
    again = dsopt.create_study(dry_run(tmp_path))
    assert not again.is_new
    assert again.earlier_results == tmp_path / "autotuning_results" / "earlier"


def test_a_study_whose_worker_is_between_two_runs_is_not_deleted(url: str, tmp_path: Path) -> None:
    study = dsopt.create_study(dry_run(tmp_path))
    store = Store.open(url)
    me = register(store.engine)
    [header] = store.headers()
    beat(store.engine, me, header.id, None)
    with pytest.raises(DsoptError, match=f"is running \\(node {re.escape(me.node)}\\). Stop it first"):
        study.delete()
    study.stop()
    study.delete()
    store.close()


def test_a_study_of_the_same_name_is_not_deleted_in_place_of_another(url: str, tmp_path: Path) -> None:
    first = dsopt.create_study(dry_run(tmp_path))
    first.delete()
    second = dsopt.create_study(dry_run(tmp_path))
    first.delete()
    assert second.state == "created"


def test_the_same_study_deleted_and_created_again_in_one_program(url: str, tmp_path: Path) -> None:
    """SQLite gives the new one the number of the old one."""
    with dsopt.create_study(dry_run(tmp_path)) as study:
        study.run("cpu:1")
        study.delete()
    again = dsopt.create_study(dry_run(tmp_path))
    assert again.earlier_results == tmp_path / "autotuning_results" / "earlier"
    assert again.runs == []
    again.run("cpu:1")
    assert again.best.name == "z1_gas1_tmbspg4"


def test_what_a_study_may_be_made_of(url: str, tmp_path: Path) -> None:
    content = dry_run(tmp_path, name="filed")
    (tmp_path / "filed.yaml").write_text(yaml.safe_dump(content))
    assert dsopt.create_study("filed.yaml").name == "filed"
    assert dsopt.create_study(tmp_path / "filed.yaml", name="renamed").name == "renamed"
    del content["name"], content["command"], content["cwd"]
    typed = dsopt.create_study(command=COMMAND, **content)
    assert typed.name == "no-such-script"  # the script's
    assert typed.spec.cwd == str(tmp_path)
    assert dsopt.create_study({**content, "command": COMMAND}).is_new is False
    for wrong in ({}, {"source": "filed.yaml", "command": COMMAND}, {"source": "filed.yaml", "timeout_seconds": 3}):
        with pytest.raises(TypeError):
            dsopt.create_study(**wrong)
    with pytest.raises(DsoptError, match=r"unknown key 'timeout'\. Did you mean 'timeout_seconds'"):
        dsopt.create_study(command=COMMAND, timeout=3)
    (tmp_path / "train.py").write_text("")
    large = ["deepspeed", "--num_gpus", "64", "train.py", "--deepspeed_config", "ds.json"]
    with pytest.raises(DsoptError, match="--num_gpus 64: this worker has 1 CPU slot"):
        dsopt.tune(large, devices="cpu:1", ds_config=content["ds_config"])
    assert {known.name for known in dsopt.list_studies()} == {"filed", "renamed", "no-such-script"}


def test_taking_over_what_another_study_has_run(url: str, tmp_path: Path) -> None:
    first = dsopt.create_study(dry_run(tmp_path))
    first.run("cpu:1")
    second = dsopt.create_study(dry_run(tmp_path, confirmation={"finalists": 1, "rounds": 1}), name="second",
                                take_over="dry")  # fmt: skip
    assert second.taken_over is not None
    assert "baseline" in second.taken_over.taken
    assert second.earlier_results is None
    assert {run.taken_over for run in second.runs} == {"dry"}


def test_tune_is_one_call_and_goes_on(url: str, tmp_path: Path) -> None:
    content = dry_run(tmp_path)
    settings = {key: content[key] for key in ("simulation", "ds_config", "confirmation")}
    seen: list[object] = []
    study = dsopt.tune(COMMAND, devices="cpu:1", name="typed", on_event=seen.append, **settings)
    assert study.best.factor is not None and study.best.factor > 1
    assert seen
    again = dsopt.tune(COMMAND, devices=DevicePool(kind="cpu", indices=(0,)), name="typed", **settings)
    assert not again.is_new and again.best.value == study.best.value


def test_runs_as_a_table_of_pandas(url: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    study = dsopt.create_study(dry_run(tmp_path))
    assert list(study.trials_dataframe().index) == []
    study.run("cpu:1")
    frame = study.trials_dataframe()
    assert frame.index.name == "id" and len(frame) == len(study.runs)
    assert frame.attrs == {"study": "dry", "metric": "throughput", "unit": "samples/s"}
    [row] = frame[(frame["candidate"] == "z1_gas1_tmbspg4") & (frame["round"] == 0)].to_dict("records")
    assert row["params_train_micro_batch_size_per_gpu"] == 4
    assert (row["zero_stage"], row["stage"], row["state"]) == (1, "z1", "measured")
    assert math.isclose(row["metric"], row["samples_per_second"])
    assert row["run_seconds"] > 0 and row["peak_memory_bytes"] > 2**30
    assert str(frame["started_at"].dtype).endswith("UTC]")


def test_pandas_that_is_missing_is_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DsoptError, match=r"pip install 'dsopt\[pandas\]'"):
        dsopt.create_study(dry_run(tmp_path)).trials_dataframe()


def test_the_storage_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSOPT_STORAGE", raising=False)
    dsopt.create_study(dry_run(tmp_path))
    assert (tmp_path / ".dsopt" / "dsopt.db").exists()
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert dsopt.list_studies(storage=other) == []
    assert not (tmp_path / "other.db").exists()
    dsopt.create_study(dry_run(tmp_path), name="elsewhere", storage=other)
    assert [known.name for known in dsopt.list_studies(storage=other)] == ["elsewhere"]
    monkeypatch.setenv("DSOPT_STORAGE", other)
    assert dsopt.load_study("elsewhere").storage == other
    one, two = dsopt.load_study("elsewhere"), dsopt.load_study("dry", storage="sqlite:///.dsopt/dsopt.db")
    with pytest.raises(DsoptError, match="one database"):
        dsopt.start_worker([one, two], "cpu:1")
