"""What others write into Optuna's tables is never run, never counts, and ends no worker."""

import json
from collections.abc import Iterator

import optuna
import pytest
import sqlalchemy as sa
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from dsopt.store.studies import Store
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
def store(dsopt_on: Dsopt) -> Iterator[Store]:
    content = {**dry_run(dsopt_on.cwd), "command": " ".join(dry_run(dsopt_on.cwd)["command"])}
    (dsopt_on.cwd / "dry.yaml").write_text(json.dumps(content))
    dsopt_on("study", "create", "dry.yaml")
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    yield store
    store.close()


def plant_flag(store: Store, trial: optuna.trial.FrozenTrial) -> None:
    """A flag in a trial, written with SQL."""
    values = {"id": trial._trial_id, "name": EVIL, "json": optuna.distributions.distribution_to_json(FLAG[EVIL])}
    insert = (
        "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (:id, :name, 0, :json)"
    )
    with store.engine.begin() as connection:
        connection.execute(sa.text(insert), values)


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


def test_what_people_add_to_the_studies_in_optuna_is_not_run(dsopt_on: Dsopt, store: Store) -> None:
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
    output = dsopt_on("worker", "dry", "--devices", "cpu:1")
    assert "WARNING: trial 0 of dry/z1 has been added by somebody else" in output
    assert "WARNING: trial 0 of dry/reference has been added by somebody else" in output
    assert "planted" not in in_reach(dsopt_on)
    assert "planted" not in dsopt_on("study", "show", "dry") + dsopt_on("study", "best", "dry")
    assert [t.state for t in trials(store, "z1")[:3]] == [TrialState.FAIL, TrialState.COMPLETE, TrialState.FAIL]


def test_a_trial_that_was_altered_does_not_count_and_its_candidate_runs_again(dsopt_on: Dsopt, store: Store) -> None:
    dsopt_on("worker", "dry", "--devices", "cpu:1")
    victim = measured(store, "z1")[0]
    plant_flag(store, victim)
    number, name = victim.number, victim.user_attrs["candidate"]
    warning = f"trial {number} of dry/z1 has parameters that the study cannot have made; it is left out."
    assert f"WARNING: {warning}" in dsopt_on("study", "show", "dry")
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_studies SET state = 'searching'"))
        connection.execute(sa.text("DELETE FROM study_user_attributes WHERE key = 'verdict'"))
    assert f"WARNING: {warning}" in dsopt_on("worker", "dry", "--devices", "cpu:1")
    again = [t for t in trials(store, "z1") if t.user_attrs.get("candidate") == name and t.number > number]
    assert [t.state for t in again] == [TrialState.COMPLETE]
    assert "planted" not in in_reach(dsopt_on)


@pytest.mark.parametrize("change", ["params", "name", "size"])
def test_a_trial_whose_worker_died_is_not_run_with_what_others_wrote(
    dsopt_on: Dsopt, store: Store, change: str
) -> None:
    """A worker adopts the running trials of dead ones; what stands in the tables is not what it claimed."""
    dsopt_on("worker", "dry", "--devices", "cpu:1")
    part = "reference" if change == "name" else "z1"
    victim = measured(store, part)[0]
    if change == "params":
        plant_flag(store, victim)
    with store.engine.begin() as connection:
        at = {"id": victim._trial_id, "number": victim.number, "part": part}
        connection.execute(sa.text("DELETE FROM dsopt_measurements"))
        connection.execute(sa.text("DELETE FROM dsopt_attempts"))
        connection.execute(sa.text("UPDATE trials SET state = 'RUNNING' WHERE trial_id = :id"), at)
        connection.execute(sa.text("UPDATE dsopt_studies SET state = 'searching'"))
        connection.execute(sa.text("DELETE FROM study_user_attributes WHERE key = 'verdict'"))
        if change == "size":
            size = "UPDATE trial_params SET param_value = 999 WHERE trial_id = :id AND param_name LIKE 'train_micro%'"
            connection.execute(sa.text(size), at)
        if change == "name":
            claim = "UPDATE dsopt_claims SET candidate = '../../planted' WHERE trial = :number AND stage = :part"
            connection.execute(sa.text(claim), at)
            named = "UPDATE trial_user_attributes SET value_json = '\"../../planted\"' "
            connection.execute(sa.text(f"{named} WHERE trial_id = :id AND key = 'candidate'"), at)
    output = dsopt_on("worker", "dry", "--devices", "cpu:1")
    assert f"WARNING: trial {victim.number} of dry/{part} has " in output
    assert trials(store, part)[victim.number].state == TrialState.FAIL
    assert not list(dsopt_on.cwd.rglob("*planted*"))
    assert store.get("dry").state == "finished"


def test_a_trial_that_optuna_cannot_read_ends_the_worker_with_a_message(dsopt_on: Dsopt, store: Store) -> None:
    optuna_study = store.optuna_study(store.get("dry"), "z1")
    optuna_study.add_trial(create_trial(state=TrialState.FAIL, params=dict.fromkeys(SIZES, 2), distributions=SIZES))
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE trial_params SET distribution_json = '{}'"))
    assert "has a trial that Optuna cannot read" in dsopt_on("worker", "dry", "--devices", "cpu:1", code=1)
