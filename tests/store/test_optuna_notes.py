"""Notes where optuna-dashboard shows them."""

from pathlib import Path

from optuna.trial import TrialState
from optuna_dashboard import get_note

import dsopt
from dsopt.api.storage import open_store
from dsopt.experiment.outcome import Infeasible
from dsopt.store.optuna_notes import trial_note
from dsopt.study.part import REFERENCE, Part
from tests.api.dry import dry_run


def test_every_study_and_every_trial_has_a_note_in_words(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dsopt.db"
    made = dsopt.create_study(dry_run(tmp_path), storage=url)
    made.run("cpu:1")
    made.close()
    store = open_store(url)
    study = store.get("dry")
    for part in (REFERENCE, Part("z1")):
        found = store.optuna_study(study, part)
        assert get_note(found).startswith("This part of the dsopt study **dry** has ")
        assert get_note(found).endswith("stay empty." if part == REFERENCE else "of a parameter are measured.")
        attributes = store.optuna_storage.get_study_system_attrs(found._study_id)
        for trial in found.get_trials(deepcopy=False):
            note = attributes[f"dashboard:{trial._trial_id}:note_str:0"]
            if trial.state == TrialState.COMPLETE:
                assert note.startswith(f"**{trial.value:.4g} samples/s** (±")
            assert attributes[f"dashboard:{trial._trial_id}:note_ver"] == 1
    store.close()


def test_a_note_is_never_longer_than_the_dashboard_shows() -> None:
    note = trial_note(Infeasible(reason="oom", message="x" * 5000), "throughput", "samples/s", 12.3)
    assert note.startswith("**infeasible, oom.** xxx")
    assert note.endswith(" The run took 12 s.")
    assert len(note) < 2000
