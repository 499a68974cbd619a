"""A finished study's files: who finishes it writes them, without its lock; an interruption is made up for."""

import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from dsopt.api.results import training_of
from dsopt.api.studies import load_study
from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.protocol.private import write_private
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.transactions import changing
from dsopt.store.url import storage_url as parsed
from dsopt.study.load import load_spec
from dsopt.study.space import Candidate
from dsopt.worker import loop, results
from dsopt.worker.ending import Ending
from dsopt.worker.happenings import Happening, StudyFinished, StudyProgressed, WorkerPaused, WorkerWentOn
from dsopt.worker.loop import Worker
from dsopt.worker.results import ensure_results, worked_seconds
from tests.conftest import Dsopt
from tests.made_up import history, observation
from tests.studies import write_study
from tests.worker.test_simulated import ONE_STAGE, STUDY

POOL = DevicePool(kind="cpu", indices=(0,))


def write_dry_run(folder: Path, **keys: object) -> None:
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}')
    (folder / "dry.yaml").write_text(yaml.safe_dump({**STUDY, "ds_config": ONE_STAGE, **keys}))


def finish(folder: Path, url: str, **keys: object) -> list[Happening]:
    """Creates the dry run and works on it in this process; gives what the worker told."""
    write_dry_run(folder, **keys)
    store = Store.open(url, make=True)
    told: list[Happening] = []
    try:
        study, _ = store.create(load_spec(folder / "dry.yaml")[0])
        Worker(store, POOL, Ending(), told.append).work(lambda: [study])
    finally:
        store.close()
    return told


def test_a_worker_by_itself_writes_the_files(tmp_path: Path, storage_url: str) -> None:
    told = finish(tmp_path, storage_url)
    [finished] = [event for event in told if isinstance(event, StudyFinished)]
    results = tmp_path / "autotuning_results"
    assert {path.name for path in finished.files} == {"summary.txt", "ds_config_optimal.json", "cmd_optimal.txt"}
    assert all(path.parent == results and path.stat().st_size for path in finished.files)
    assert not list(results.glob("*.tmp"))
    counts = [len(event.history.everything) for event in told if isinstance(event, StudyProgressed)]
    assert counts[0] == 0
    assert counts == sorted(counts)


def finish_two(
    folder: Path, url: str, meanwhile: Callable[[], object] = lambda: None
) -> tuple[list[Happening], str | None]:
    """Works on two dry runs; gives what the worker told, and its error. The second study is finished."""
    store = Store.open(url, make=True)
    told: list[Happening] = []
    error = None

    def tell(happening: Happening) -> None:
        told.append(happening)
        meanwhile()

    try:
        for name in ("one", "two"):
            own = {"results_dir": f"results-{name}", "exps_dir": f"exps-{name}"}
            write_dry_run(folder, name=name, autotuning={**STUDY.get("autotuning", {}), **own})
            store.create(load_spec(folder / "dry.yaml")[0])
        try:
            Worker(store, POOL, Ending(), tell).work(lambda: [store.get(name) for name in ("one", "two")])
        except DsoptError as problem:
            error = str(problem)
        assert store.get("two").state == "finished"
    finally:
        store.close()
    assert (folder / "results-two" / "summary.txt").is_file()
    return told, error


def test_what_is_wrong_with_one_studys_folder_stops_no_other_study(tmp_path: Path, storage_url: str) -> None:
    taken = tmp_path / "results-one" / "summary.txt"
    _, error = finish_two(tmp_path, storage_url, lambda: taken.mkdir(parents=True, exist_ok=True))
    assert error is not None
    assert error.startswith(
        f"study 'one': {tmp_path}/results-one/summary.txt: Is a directory. Nothing that was recorded"
    )


def test_a_database_that_is_away_while_the_files_are_written_is_waited_for(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends all of the worker's connections when it has the lock for writing."""
    summary_of, calls = results.summary_of, [0]

    def cut(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            engine = sa.create_engine(parsed(postgres_url))
            mine = "datname = current_database() AND pid <> pg_backend_pid()"
            with engine.connect() as connection:
                connection.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}"))
            engine.dispose()
        return summary_of(*args)

    monkeypatch.setattr(results, "summary_of", cut)
    told, error = finish_two(tmp_path, postgres_url)
    assert error is None
    assert [type(event) for event in told if isinstance(event, WorkerPaused | WorkerWentOn)] == [
        WorkerPaused,
        WorkerWentOn,
    ]
    assert (tmp_path / "results-one" / "summary.txt").is_file()


def test_a_disk_that_is_full_while_the_files_are_written_is_waited_for(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def fill(*args: Any) -> Sequence[Path]:
        if left:
            raise left.pop()
        return ensure_results(*args)

    monkeypatch.setattr(loop, "ensure_results", fill)
    told, error = finish_two(tmp_path, storage_url)
    assert error is None
    pauses = [event for event in told if isinstance(event, WorkerPaused | WorkerWentOn)]
    why = f"the disk of {tmp_path}/results-one is full. Make room on it, at least 16 MiB"
    assert pauses == [WorkerPaused(why=why), WorkerWentOn()]


def test_others_can_write_while_the_files_are_written(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = []
    write = loop.ensure_results

    def change_it(store: Store, study: StoredStudy) -> list[Path]:
        with changing(store.engine, study.id):
            free.append(True)
        return write(store, study)

    monkeypatch.setattr(loop, "ensure_results", change_it)
    finish(tmp_path, storage_url)
    assert free == [True]


@pytest.mark.parametrize("command", [["study", "best", "dry"], ["worker", "dry"]])
def test_files_that_an_interruption_left_unwritten_are_written_by_who_asks(dsopt: Dsopt, command: list[str]) -> None:
    finish(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    results = dsopt.cwd / "autotuning_results"
    best = (results / "ds_config_optimal.json").read_text()
    for name in ("summary.txt", "cmd_optimal.txt", ".dsopt-results"):
        (results / name).unlink()
    (results / "ds_config_optimal.json").write_text("of another study")
    dsopt(*command)
    assert (results / "ds_config_optimal.json").read_text() == best
    assert (results / "summary.txt").exists() and (results / "cmd_optimal.txt").exists()


def test_a_file_that_is_empty_is_written_again_and_one_that_was_changed_is_told(dsopt: Dsopt) -> None:
    """The first may be so after a loss of power; the other is the user's to keep."""
    finish(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    path = dsopt.cwd / "autotuning_results" / "ds_config_optimal.json"
    best = path.read_text()
    path.write_text("")
    assert "does not have the configuration" not in dsopt("study", "best", "dry")
    assert path.read_text() == best
    path.write_text("{}")
    told = " ".join(dsopt("study", "best", "dry").split())
    assert f"WARNING: {path} does not have the configuration that was measured" in told
    assert path.read_text() == "{}"
    dsopt("study", "best", "dry", "--output", "measured.json")
    assert (dsopt.cwd / "measured.json").read_text() == best


def test_what_was_changed_is_kept_when_the_files_are_written_anew(dsopt: Dsopt) -> None:
    finish(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    results = dsopt.cwd / "autotuning_results"
    path = results / "ds_config_optimal.json"
    (results / "summary.txt").write_text("my notes")
    for kept in ("ds_config_optimal.json.changed", "ds_config_optimal.json.changed.2"):
        path.write_text(json.dumps({"own": kept}))
        said = " ".join(dsopt("study", "best", "dry", "--apply-lr-scaling").split())
        assert f"had changed a result file. It is {results / kept} now." in said
        assert json.loads((results / kept).read_text()) == {"own": kept}
        assert "own" not in json.loads(path.read_text())
        dsopt("study", "best", "dry", "--no-apply-lr-scaling")
    kept_ones = ["ds_config_optimal.json.changed", "ds_config_optimal.json.changed.2", "summary.txt.changed"]
    assert sorted(path.name for path in results.glob("*changed*")) == kept_ones
    assert (results / "summary.txt.changed").read_text() == "my notes"


def test_a_file_on_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fchmod", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*summary'"):
        write_private(tmp_path / "summary", "text")


def test_files_that_are_there_are_left(dsopt: Dsopt) -> None:
    finish(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    summary = dsopt.cwd / "autotuning_results" / "summary.txt"
    before = summary.stat().st_mtime_ns
    dsopt("worker", "dry")
    assert summary.stat().st_mtime_ns == before


def test_results_of_an_earlier_study_are_set_aside_when_it_is_created_anew(dsopt: Dsopt) -> None:
    finish(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    results = dsopt.cwd / "autotuning_results"
    (results / "notes.txt").write_text("the user's")
    runs = {path for path in results.iterdir() if path.is_dir()}
    dsopt("study", "delete", "dry", "--yes")
    said = dsopt("study", "create", "dry.yaml")
    assert f"Moved the result files of an earlier study 'dry' to {results / 'earlier'}." in said
    assert {path.name for path in results.iterdir() if path.is_file()} == {".dsopt-study", "notes.txt"}
    assert {path for path in results.iterdir() if path.is_dir()} == {*runs, results / "earlier"}
    assert json.loads((results / "earlier" / "ds_config_optimal.json").read_text())["train_micro_batch_size_per_gpu"]
    assert str(results / "earlier" / "ds_config_optimal.json") in (results / "earlier" / "cmd_optimal.txt").read_text()
    assert "earlier" not in dsopt("study", "create", "dry.yaml")  # the same study: nothing is moved


def test_a_training_begins_with_a_file_that_no_other_study_changes(tmp_path: Path) -> None:
    url, other = (f"sqlite:///{tmp_path}/{name}.db" for name in "ab")
    finish(tmp_path, url)
    study = load_study("dry", storage=url)
    config = Path(training_of(study._store, study._stored, scale_lr=False).config or "")
    before = config.read_text()
    assert json.loads(before) == json.loads((tmp_path / "autotuning_results" / "ds_config_optimal.json").read_text())
    finish(tmp_path, other, ds_config={"zero_optimization": {"stage": [3]}})
    assert (tmp_path / "autotuning_results" / "ds_config_optimal.json").read_text() != before
    assert config.read_text() == before


def test_a_study_of_the_same_name_in_another_database_replaces_no_results(dsopt: Dsopt) -> None:
    storage = dsopt.environment["DSOPT_STORAGE"]
    dsopt.environment["DSOPT_STORAGE"] = storage.replace(".db", "-2.db")
    write_dry_run(dsopt.cwd, ds_config={"zero_optimization": {"stage": [3]}})
    dsopt("study", "create", "dry.yaml")
    finish(dsopt.cwd, storage)
    results = dsopt.cwd / "autotuning_results"
    first = (results / "ds_config_optimal.json").read_text()
    told = f"The results of another study 'dry' were in this folder. They are in {results / 'earlier'} now."
    said = dsopt("worker", "dry")
    assert told in " ".join(said.split())
    assert (results / "earlier" / "ds_config_optimal.json").read_text() == first
    assert (results / "ds_config_optimal.json").read_text() != first
    assert told in " ".join(dsopt("worker", "dry").split())
    assert not (results / "earlier.2").exists()
    (results / "earlier").rename(results / "kept")
    assert "The results of another study" not in dsopt("study", "best", "dry")


def test_a_look_at_another_databases_study_moves_no_results(dsopt: Dsopt) -> None:
    """Whoever copied the line "Train with" then trained with the other study's configuration."""
    storage, results = dsopt.environment["DSOPT_STORAGE"], dsopt.cwd / "autotuning_results"
    finish(dsopt.cwd, storage)
    first = (results / "ds_config_optimal.json").read_text()
    dsopt.environment["DSOPT_STORAGE"] = storage.replace(".db", "-2.db")
    write_dry_run(dsopt.cwd, ds_config={"zero_optimization": {"stage": [3]}})
    dsopt("study", "create", "dry.yaml")
    dsopt("worker", "dry")
    second = (results / "ds_config_optimal.json").read_text()
    dsopt.environment["DSOPT_STORAGE"] = storage
    for _ in range(2):
        own = load_study("dry", storage=storage).best.config_file
        assert own.read_text() == first
        assert own.parent.parent == results
        assert own.parent.name.startswith("created-")
    assert (results / "ds_config_optimal.json").read_text() == second != first
    assert not (results / "earlier.2").exists()


def test_nothing_of_the_users_is_moved(dsopt: Dsopt) -> None:
    results = dsopt.cwd / "autotuning_results"
    results.mkdir()
    (results / "summary.txt").write_text("the user's")
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    assert (results / "summary.txt").read_text() == "the user's"


def test_nights_that_nobody_worked_do_not_count() -> None:
    day = 86400.0
    kept = {"stage": "z1", "reason": None}
    runs = [
        {**kept, "trial": 0, "started_at": 0.0, "finished_at": 5.0},
        {**kept, "trial": 1, "started_at": 5.0, "finished_at": day, "reason": "lost"},  # missed the next morning
        {**kept, "trial": 2, "started_at": day, "finished_at": day + 7},
        {**kept, "trial": 3, "started_at": -day, "finished_at": 0.0},  # another study's
    ]
    store = SimpleNamespace(runs=lambda study: runs)
    candidate = Candidate(stage=1, micro_batch=1, gas=1)
    known = history(observation(candidate, 1.0, trial=3, taken_over="other"))
    assert worked_seconds(store, None, known) == 12.0


def test_no_study_moves_the_configuration_aside_that_its_command_names(dsopt: Dsopt) -> None:
    """The same line could not be continued, and in the end another configuration stood under that name."""
    finish(dsopt.cwd, dsopt.environment["DSOPT_STORAGE"])
    dsopt("study", "delete", "dry", "--yes")
    best = dsopt.cwd / "autotuning_results" / "ds_config_optimal.json"
    before = best.read_text()
    content = {**STUDY, "command": STUDY["command"].replace("ds.json", str(best))}
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(content))
    said = dsopt("study", "create", "dry.yaml", code=1)
    assert f"{best}: is the result of an earlier study 'dry', which a new one moves aside. Copy it" in said
    assert best.read_text() == before
    assert dsopt.json("study", "list") == []
