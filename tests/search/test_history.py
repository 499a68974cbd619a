"""What is read of a study's trials, also while others write them."""

from dataclasses import MISSING, fields

import optuna

from dsopt.protocol.events import Engine
from dsopt.search.observing import observe
from dsopt.study.part import REFERENCE
from tests.runs import engine


def test_an_engine_is_read_once_all_that_it_needs_is_written() -> None:
    """A worker writes a trial's attributes one after the other, while others read them."""
    study = optuna.create_study()
    trial = study.ask()
    for name in (field.name for field in fields(Engine) if field.default is MISSING and field.name != "rank"):
        seen = observe(study.get_trials()[0], REFERENCE)
        assert seen.engine is None
        trial.set_user_attr(name, getattr(engine(), name))
    seen = observe(study.get_trials()[0], REFERENCE)
    assert seen.engine == engine()
