"""A run that goes on, for pages that show it."""

from optuna.trial import TrialState, create_trial

import dsopt
from dsopt.search.sampler import distributions
from dsopt.store.attempts import NewTask
from dsopt.store.studies import Store
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from tests.store.ledger import begin, ledger_of


def begin_run(made: dsopt.Study, store: Store, candidate: Candidate) -> None:
    """Begins a run of a candidate in a study, as a worker that registers now."""
    frozen = create_trial(
        state=TrialState.RUNNING,
        params=candidate.params,
        distributions=distributions(made.spec.space(candidate.stage)),
        user_attrs={"candidate": candidate.name, "phase": "joint"},
    )
    task = NewTask(part=Part.of(candidate.stage), name=candidate.name, round=0, frozen=frozen)
    begin(ledger_of(store), store.get(made.name), task, store)
