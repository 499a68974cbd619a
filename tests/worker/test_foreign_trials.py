"""What others write into the database is never run and never counts."""

import json
from collections.abc import Callable, Iterator

import optuna
import pytest
import sqlalchemy as sa
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from dsopt.errors import DsoptError
from dsopt.store.optuna_rows import add_trial
from dsopt.store.studies import Store
from dsopt.store.transactions import writing
from tests.api.dry import dry_run
from tests.conftest import Dsopt

pytestmark = pytest.mark.slow

EVIL = "--planted"
SIZES = {
    "train_micro_batch_size_per_gpu": IntDistribution(1, 2**20, log=True),
    "gradient_accumulation_steps": IntDistribution(1, 2**20, log=True),
}
FLAG = {EVIL: CategoricalDistribution(["$(touch planted)"])}


@pytest.fixture
def store(dsopt: Dsopt) -> Iterator[Store]:
    content = {**dry_run(dsopt.cwd), "command": " ".join(dry_run(dsopt.cwd)["command"])}
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(content))
    dsopt("study", "create", "dry.yaml")
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    yield store
    store.close()


def plant_flag(store: Store, trial: optuna.trial.FrozenTrial) -> None:
    """A flag in a trial of Optuna's, written with SQL."""
    values = {"id": trial._trial_id, "name": EVIL, "json": optuna.distributions.distribution_to_json(FLAG[EVIL])}
    insert = (
        "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (:id, :name, 0, :json)"
    )
    with store.engine.begin() as connection:
        connection.execute(sa.text(insert), values)


def alter(store: Store, part: str, number: int, change: Callable[[dict], None], **columns: object) -> None:
    """Changes what dsopt keeps of a trial, with SQL, and lets the study go on."""
    where = "WHERE stage = :part AND trial = :number"
    at = {"part": part, "number": number}
    with store.engine.begin() as connection:
        begun = json.loads(connection.execute(sa.text(f"SELECT begun FROM dsopt_claims {where}"), at).scalar_one())
        change(begun)
        values = {"begun": json.dumps(begun), **columns}
        given = ", ".join(f"{name} = :{name}" for name in values)
        connection.execute(sa.text(f"UPDATE dsopt_claims SET {given} {where}"), {**at, **values})
        connection.execute(sa.text("UPDATE dsopt_studies SET state = 'searching', marks = '{}'"))


def in_reach(dsopt: Dsopt) -> str:
    """Everything that a run or a reader of the results could be given."""
    folder = dsopt.cwd / "autotuning_results"
    return "\n".join(path.read_text("utf-8", errors="replace") for path in folder.rglob("*") if path.is_file())


def trials(store: Store, part: str) -> list[optuna.trial.FrozenTrial]:
    storage = Store.open(store.engine.url.render_as_string(hide_password=False))
    try:
        return storage.optuna_study(storage.get("dry"), part).get_trials()
    finally:
        storage.close()


def measured(store: Store, part: str) -> list[optuna.trial.FrozenTrial]:
    return [t for t in trials(store, part) if t.state == TrialState.COMPLETE and "measured_as" not in t.user_attrs]


def test_what_people_add_to_the_studies_in_optuna_is_not_run(dsopt: Dsopt, store: Store) -> None:
    study = store.get("dry")
    sizes = dict.fromkeys(SIZES, 2)
    for part in ("z1", "reference"):
        optuna_study = store.optuna_study(study, part)
        optuna_study.enqueue_trial(
            {**sizes, EVIL: "$(touch planted)"}, user_attrs={"profile_params": "{}", "round": "x"}
        )
        for state, value in ((TrialState.COMPLETE, 1e9), (TrialState.RUNNING, None)):
            added = create_trial(
                state=state, value=value, params={**sizes, EVIL: "$(touch planted)"}, distributions={**SIZES, **FLAG}
            )
            optuna_study.add_trial(added)
    output = dsopt("worker", "dry", "--devices", "cpu:1")
    assert "WARNING: trial 0 of dry/z1 has been added by somebody else" in output
    assert "WARNING: trial 0 of dry/reference has been added by somebody else" in output
    assert "planted" not in in_reach(dsopt)
    assert "planted" not in dsopt("study", "show", "dry") + dsopt("study", "best", "dry")
    assert [t.state for t in trials(store, "z1")[:3]] == [TrialState.FAIL, TrialState.COMPLETE, TrialState.FAIL]


def test_what_people_change_of_trials_in_optuna_changes_nothing(dsopt: Dsopt, store: Store) -> None:
    dsopt("worker", "dry", "--devices", "cpu:1")
    shown, best = dsopt("study", "show", "dry"), dsopt("study", "best", "dry")
    for trial in measured(store, "z1"):
        plant_flag(store, trial)
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE trial_values SET value = 1e9"))
        connection.execute(sa.text("UPDATE trials SET state = 'FAIL' WHERE number > 1"))
        connection.execute(sa.text("UPDATE trial_params SET distribution_json = '{}'"))
        connection.execute(sa.text("DELETE FROM study_user_attributes WHERE key = 'verdict'"))
    assert (dsopt("study", "show", "dry"), dsopt("study", "best", "dry")) == (shown, best)


def test_a_trial_that_was_altered_does_not_count_and_its_candidate_runs_again(dsopt: Dsopt, store: Store) -> None:
    dsopt("worker", "dry", "--devices", "cpu:1")
    victim = measured(store, "z1")[0]
    number, name = victim.number, victim.user_attrs["candidate"]
    alter(store, "z1", number, lambda begun: begun["params"].update({EVIL: "$(touch planted)"}))
    warning = f"trial {number} of dry/z1 has parameters that the study cannot have made; it is left out."
    assert f"WARNING: {warning}" in dsopt("study", "show", "dry")
    assert f"WARNING: {warning}" in dsopt("worker", "dry", "--devices", "cpu:1")
    again = [t for t in trials(store, "z1") if t.user_attrs.get("candidate") == name and t.number > number]
    assert [t.state for t in again] == [TrialState.COMPLETE]
    assert "planted" not in in_reach(dsopt)


def plant_size(begun: dict) -> None:
    begun["params"].update(train_micro_batch_size_per_gpu=999)
    begun["attributes"].update(candidate="z1_gas1_tmbspg999")


CHANGES = {
    "params": ("z1", lambda begun: begun["params"].update({EVIL: "$(touch planted)"}), {}),
    "size": ("z1", lambda begun: begun["params"].update({"train_micro_batch_size_per_gpu": 999}), {}),
    "size and name": ("z1", plant_size, {"candidate": "z1_gas1_tmbspg999"}),
    "name": (
        "reference",
        lambda begun: begun["attributes"].update(candidate="../../planted"),
        {"candidate": "../../planted"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_trial_whose_worker_died_is_not_run_with_what_others_wrote(dsopt: Dsopt, store: Store, change: str) -> None:
    """A worker adopts the running trials of dead ones; what stands in the tables is not what they claimed."""
    dsopt("worker", "dry", "--devices", "cpu:1")
    part, altered, columns = CHANGES[change]
    victim = measured(store, part)[0]
    with store.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM dsopt_measurements"))
        connection.execute(sa.text("DELETE FROM dsopt_attempts"))
        reopen = "UPDATE trials SET state = 'RUNNING' WHERE trial_id = :id"
        connection.execute(sa.text(reopen), {"id": victim._trial_id})
    alter(store, part, victim.number, altered, ended=None, **columns)
    output = dsopt("worker", "dry", "--devices", "cpu:1")
    assert f"WARNING: trial {victim.number} of dry/{part} has " in output
    assert trials(store, part)[victim.number].state == TrialState.FAIL
    assert not list(dsopt.cwd.rglob("*planted*"))
    assert store.get("dry").state == "finished"


def test_a_record_that_cannot_be_read_ends_the_worker_with_a_message(dsopt: Dsopt, store: Store) -> None:
    dsopt("worker", "dry", "--devices", "cpu:1")
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_claims SET ended = '[]'"))
        connection.execute(sa.text("UPDATE dsopt_studies SET state = 'searching'"))
    assert "has a row (id 1) that dsopt cannot read" in dsopt("worker", "dry", "--devices", "cpu:1", code=1)


@pytest.mark.parametrize("part", ["reference", "z1"])
def test_a_part_that_an_optuna_client_has_deleted_is_told(store: Store, dsopt: Dsopt, part: str) -> None:
    optuna.delete_study(study_name=f"dry/{part}", storage=dsopt.environment["DSOPT_STORAGE"])
    told = dsopt("worker", "dry", code=1)
    assert f"error: study 'dry': Optuna's study 'dry/{part}' was deleted, with Optuna" in told
    with writing(store.engine) as connection, pytest.raises(DsoptError, match="was deleted"):
        add_trial(connection, f"dry/{part}", create_trial(state=TrialState.RUNNING))
