"""What a study cost: every launch that held devices, whatever came of it."""

import pytest
import sqlalchemy as sa

from dsopt.experiment.outcome import Failed
from dsopt.store.studies import Store
from dsopt.store.tables import attempts
from dsopt.worker.results import summary_of
from tests.store.ledger import begin, ledger_of, measured, new_task, spec


def test_failed_and_lost_launches_cost_what_they_held(storage_url: str) -> None:
    store = Store.open(storage_url, make=True)
    try:
        study, _ = store.create(spec(price_per_gpu_hour=3.6))
        ledger = ledger_of(store)
        task, attempt = begin(ledger, study, new_task("baseline", "reference"), store)
        ledger.end(study, task, attempt, measured(), {}, is_told=True)
        for name, reason in (("z0_gas1_tmbspg1", "crash"), ("z0_gas1_tmbspg2", "lost")):
            task, attempt = begin(ledger, study, new_task(name), store)
            ledger.end(study, task, attempt, Failed(reason=reason, message="no"), {}, is_told=True)
        with store.engine.begin() as connection:
            rows = connection.execute(sa.select(attempts.c.started_at, attempts.c.finished_at)).all()
        held = sum(row.finished_at - row.started_at for row in rows)
        cost = summary_of(store, study).cost
        assert cost is not None
        assert len(rows) == 3
        assert held > 0
        assert cost.study == pytest.approx(held * 2 / 3600 * 3.6)  # on two ranks each
    finally:
        store.close()
