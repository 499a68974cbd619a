"""Studies and attempts in both databases: what the database itself makes sure of."""

import json
import shlex
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Failed
from dsopt.launch.devices import DevicePool
from dsopt.store import keys
from dsopt.store.backup import refuse_to_lose
from dsopt.store.changed import changed_study_error
from dsopt.store.leases import Request
from dsopt.store.queries import other_workers
from dsopt.store.reading import kept_trials, marks_of
from dsopt.store.studies import Store
from dsopt.store.tables import attempts, studies, workers
from dsopt.store.transactions import StudyChanged, changing
from dsopt.store.who_works import running_attempts
from dsopt.study.part import Part
from dsopt.study.spec import StudySpec, digest_of
from dsopt.worker.history import load_history
from dsopt.worker.results import summary_of
from tests.store.ledger import begin, ledger_of, new_task, spec


def test_creating_the_same_study_again_changes_nothing(store: Store) -> None:
    first, is_new = store.create(spec())
    again, is_new_again = store.create(spec())
    assert (is_new, is_new_again) == (True, False)
    assert again == first
    names = optuna.get_all_study_names(store.optuna_storage)
    assert sorted(names) == ["s/reference", "s/z0", "s/z1", "s/z2", "s/z3"]


def test_what_a_terminal_would_obey_is_not_shown(store: Store) -> None:
    """Whoever can write to the database can put it there."""
    study, _ = store.create(spec())
    marks = json.dumps({"z0": {"verdict": "explored\x1b[8m"}})
    change = "UPDATE dsopt_studies SET state = 'stopped', note = :note, marks = :marks"
    with store.engine.begin() as connection:
        connection.execute(sa.text(change), {"note": "enough\x1b]0;title\x07 \u202etxt", "marks": marks})
    assert store.get(study.name).note == "enough\ufffd]0;title\ufffd \ufffdtxt"
    assert load_history(store, study).verdicts == {0: "explored\ufffd[8m"}


def test_a_different_spec_under_a_used_name_shows_the_difference(store: Store) -> None:
    store.create(spec())
    with pytest.raises(DsoptError) as caught:
        store.create(spec(timeout_seconds=5))
    assert '+  "timeout_seconds": 5.0' in str(caught.value)
    assert "dsopt study delete s" in str(caught.value)
    assert store.get("s").spec == spec()


def test_the_price_of_a_gpu_may_change_at_any_time(store: Store) -> None:
    first, _ = store.create(spec(price_per_gpu_hour=2.5))
    again, is_new = store.create(spec(price_per_gpu_hour=3.5))
    assert (again.id, is_new, again.spec.price_per_gpu_hour) == (first.id, False, 3.5)
    assert store.create(spec())[0].spec.price_per_gpu_hour == 3.5, "one that is not given takes none away"
    assert store.get("s").spec.digest == spec().digest


def test_a_study_whose_digest_has_its_price_is_read(store: Store) -> None:
    priced = spec(price_per_gpu_hour=2.5)
    store.create(priced)
    earlier = digest_of(json.loads(priced.to_json()), with_price=True)
    with store.engine.begin() as connection:
        connection.execute(sa.update(studies).values(digest=earlier))
    assert store.get("s").spec.price_per_gpu_hour == 2.5
    assert store.create(spec(price_per_gpu_hour=3.0))[0].spec.price_per_gpu_hour == 3.0


def test_a_name_that_is_not_there_suggests_the_nearest(store: Store) -> None:
    with pytest.raises(DsoptError, match="There is none yet"):
        store.get("tiny")
    store.create(spec("tiny-gpt"))
    with pytest.raises(DsoptError, match="Did you mean 'tiny-gpt'"):
        store.get("tiny-gtp")


def test_overwrite_starts_a_finished_study_anew(store: Store) -> None:
    study, _ = store.create(spec())
    with changing(store.engine, study.id, state="finished"):
        pass
    again, is_new = store.create(spec(autotuning={"overwrite": True}))
    assert is_new
    assert again.state == "created"
    assert not store.create(spec(autotuning={"overwrite": True}))[1]  # not finished: it goes on


def test_overwrite_leaves_the_study_of_another_folder(store: Store) -> None:
    """By default a study has the name of its script, and many scripts are called `train.py`."""
    study, _ = store.create(spec(cwd="/alice"))
    with changing(store.engine, study.id, state="finished"):
        pass
    with pytest.raises(DsoptError, match=r"the study of another folder: /alice") as refused:
        store.create(spec(cwd="/bob", autotuning={"overwrite": True}))
    assert "study delete" not in str(refused.value)
    assert store.get("s").id == study.id


def test_what_another_study_of_the_name_shows_is_not_this_ones(store: Store) -> None:
    former, _ = store.create(spec())
    store.delete(former)
    store.create(spec())
    with pytest.raises(DsoptError, match="'s' was deleted and created anew"):
        summary_of(store, former)


def test_the_users_own_studies_in_optuna_stay(store: Store) -> None:
    study, _ = store.create(spec())
    own = [optuna.create_study(study_name=name, storage=store.optuna_storage) for name in ("s/mine", "mine")]
    store.delete(study)
    assert {*optuna.get_all_study_names(store.optuna_storage)} == {"s/mine", "mine"}
    with pytest.raises(DsoptError, match=r"would be lost: s/mine, mine\. To replace"):
        refuse_to_lose(store.engine, replace=False)
    assert len(own) == 2


def test_a_finished_study_that_is_only_to_be_signed_is_not_overwritten(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is not signed says: create it again from its file."""
    again = spec(autotuning={"overwrite": True})
    study, _ = store.create(again)
    with changing(store.engine, study.id, state="finished"):
        pass
    monkeypatch.setenv("DSOPT_KEYS", str(tmp_path))
    keys.create_key()
    signed, is_new = store.create(again)
    assert (signed.id, is_new, signed.distrust) == (study.id, False, None)
    assert store.create(again)[1]


def test_a_study_that_another_one_starts_from_stays_until_that_is_finished(store: Store) -> None:
    earlier, _ = store.create(spec("earlier"))
    later, _ = store.create(spec("later", warm_start=["earlier"]))
    with pytest.raises(DsoptError, match=r"'later' starts from its results.*dsopt study delete later"):
        store.delete(earlier)
    assert store.get("earlier").id == earlier.id
    with changing(store.engine, later.id, state="finished"):
        pass
    store.delete(earlier)
    assert [header.name for header in store.headers()] == ["later"]


def test_stop_and_resume(store: Store) -> None:
    study, _ = store.create(spec())
    assert not store.resume(study)
    assert store.stop(study, "enough")
    assert not store.stop(study, "again")
    assert store.get("s").note == "enough"
    ledger = ledger_of(store)
    with pytest.raises(StudyChanged):  # a worker that has not noticed yet
        ledger.change(study, version=store.now(study).version, state="searching")
    assert store.state(study) == "stopped"
    assert store.resume(store.get("s"))
    assert store.state(study) == "created"


def test_a_study_is_there_only_with_all_of_its_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may take it up at once; and its creator may die at any moment."""
    with monkeypatch.context() as patch:
        patch.setattr("optuna.create_study", lambda **_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.create(spec())
    assert store.headers() == []
    study, _ = store.create(spec())
    assert [store.optuna_study(study, part).trials for part in study.parts] == [[] for _ in study.parts]


@pytest.mark.parametrize("has_trial", [True, False])
def test_a_study_of_optunas_that_somebody_else_made_stays(store: Store, has_trial: bool) -> None:
    """It was emptied or mixed up with a part of that name, and went with the study."""
    own = optuna.create_study(study_name="s/z1", storage=store.optuna_storage)
    if has_trial:
        own.add_trial(optuna.trial.create_trial(value=1.0))
    else:
        own.set_user_attr("note", "mine")
    optuna.create_study(study_name="s/z0", storage=store.optuna_storage)
    with pytest.raises(DsoptError, match=r"an Optuna study 's/z1' that is not dsopt's\. It stays as it is"):
        store.create(spec())
    assert sorted(optuna.get_all_study_names(store.optuna_storage)) == ["s/z0", "s/z1"]
    assert (len(own.trials) == 1) == has_trial
    assert store.headers() == []


@pytest.mark.parametrize("marks", ["x", "[]", '{"z0": 5}'])
def test_marks_that_dsopt_has_not_written_are_none(store: Store, marks: str) -> None:
    study, _ = store.create(spec())
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_studies SET marks = :marks"), {"marks": marks})
    assert marks_of(store, study, Part("z0")) == {}


ROWS = {"stage": "bogus", "begun": '{"params": [1], "attributes": {}}', "ended": '{"state": "RUNNING"}'}


@pytest.mark.parametrize("column", ROWS)
def test_a_row_that_dsopt_has_not_written_is_one_message(store: Store, column: str) -> None:
    study, _ = store.create(spec())
    begin(ledger_of(store), study, new_task(), store)
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE dsopt_claims SET {column} = :value"), {"value": ROWS[column]})
    with pytest.raises(DsoptError, match="that dsopt cannot read"):
        kept_trials(store, study)


def test_delete_leaves_nothing_of_a_study_and_all_of_others(store: Store) -> None:
    study, _ = store.create(spec())
    store.create(spec("other"))
    ledger = ledger_of(store)
    claimed, attempt = begin(ledger, study, new_task(), store)
    with pytest.raises(DsoptError, match="is running"):
        store.delete(store.get("s"))
    ledger.end(study, claimed, attempt, Failed(reason="crash", message="x"), {}, is_told=True)
    store.delete(store.get("s"))
    assert [s.name for s in store.headers()] == ["other"]
    assert all(name.startswith("other/") for name in optuna.get_all_study_names(store.optuna_storage))
    with store.engine.connect() as connection:
        for table in ("attempts", "claims", "leases", "measurements"):
            assert connection.execute(sa.text(f"SELECT count(*) FROM dsopt_{table}")).scalar_one() == 0


def test_a_study_that_cannot_be_read_is_listed_deleted_and_in_nobodys_way(store: Store) -> None:
    store.create(spec("good"))
    store.create(spec("broken"))
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_studies SET spec = '{}' WHERE name = 'broken'"))
    assert [header.name for header in store.headers()] == ["good", "broken"]
    with pytest.raises(DsoptError, match="study 'broken' was made by another version"):
        store.get("broken")
    assert store.get("good").state == "created"
    store.delete(store.header("broken"))
    assert [header.name for header in store.headers()] == ["good"]
    assert not [n for n in optuna.get_all_study_names(store.optuna_storage) if n.startswith("broken/")]


def test_an_earlier_study_to_begin_with_has_to_be_there(store: Store) -> None:
    later = spec("later", warm_start=["s"])
    with pytest.raises(DsoptError, match=r"study 'later': warm_start: there is no study 's'"):
        store.create(later)
    store.create(spec())
    assert store.create(later)[1]


def test_a_study_is_read_though_the_one_it_began_with_is_gone(store: Store) -> None:
    store.create(spec())
    study, _ = store.create(spec("later", warm_start=["s"]))
    with changing(store.engine, study.id, state="finished"):
        pass
    store.delete(store.header("s"))
    assert load_history(store, study).everything == []
    with store.engine.begin() as connection:  # as `dsopt study resume` does where nothing was confirmed
        connection.execute(sa.text("UPDATE dsopt_studies SET state = 'confirming' WHERE name = 'later'"))
    assert load_history(store, study).everything == []


def test_what_differs_between_two_specs_is_shown_without_secrets() -> None:
    def with_(key: str, token: str, steps: int) -> StudySpec:
        command = f"deepspeed t.py --hub_token {shlex.quote(token)} --steps {steps} --deepspeed_config c.json"
        return StudySpec.model_validate(
            {"name": "s", "command": command, "cwd": "/", "ds_config": {"comet": {"api_key": key}, "steps": steps}}
        )

    error = str(
        changed_study_error(with_("one-key-4711", "a&b<c'd9z4", 1), with_("two-key-4712", "abcdefgh", 2), ["s"])
    )
    assert not [secret for secret in ("one-key", "two-key", "a&b<c", "abcdefgh") if secret in error]
    assert '+    "steps": 2' in error
    assert "--steps 2" in error


def test_a_clock_that_was_set_back_stops_nobody(store: Store) -> None:
    """A heartbeat, or the beginning of a run, lies in the future then."""
    made = store.create(spec())[0]
    ledger = ledger_of(store)
    request = Request(pool=DevicePool(kind="cpu", indices=(0,)), count=1)
    ledger.begin(made, new_task("baseline"), Path("/made/up"), request)
    with store.engine.begin() as connection:
        connection.execute(sa.update(workers).values(heartbeat_at=workers.c.heartbeat_at + 600))
        connection.execute(sa.update(attempts).values(started_at=attempts.c.started_at + 600))
    with store.engine.connect() as connection:
        [seen] = other_workers(connection, None)
        [run] = running_attempts(connection)
    assert seen["silent_seconds"] == run["running_seconds"] == 0
