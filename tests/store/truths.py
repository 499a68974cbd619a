"""What holds of a database at every moment, whatever has happened: compared with a world that knows what is true."""

import json
from collections import Counter

import sqlalchemy as sa

from tests.store.world import BUDGET, World

_TABLES = {
    "studies": "SELECT id, name, state FROM dsopt_studies",
    "workers": "SELECT id FROM dsopt_workers",
    "claims": "SELECT study_id, stage, trial, candidate, worker_id, ended FROM dsopt_claims",
    "attempts": """SELECT a.*, m.metric FROM dsopt_attempts a
        LEFT JOIN dsopt_measurements m ON m.attempt_id = a.id""",
    "leases": "SELECT node, device, attempt_id FROM dsopt_leases",
    "parts": "SELECT study_name FROM studies",
    "trials": """SELECT s.study_name, t.number, t.state, v.value, c.value_json AS candidate, r.value_json AS run_dir
        FROM trials t JOIN studies s ON s.study_id = t.study_id
        LEFT JOIN trial_values v ON v.trial_id = t.trial_id
        LEFT JOIN trial_user_attributes c ON c.trial_id = t.trial_id AND c.key = 'candidate'
        LEFT JOIN trial_user_attributes r ON r.trial_id = t.trial_id AND r.key = 'run_dir'""",
    "reports": """SELECT s.study_name, t.number, i.intermediate_value AS value FROM trial_intermediate_values i
        JOIN trials t ON t.trial_id = i.trial_id JOIN studies s ON s.study_id = t.study_id""",
}


class Truths:
    """What stands in the database now.

    Args:
        world: what is true.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        with world.stores[0].engine.connect() as connection:
            found = {name: connection.execute(sa.text(query)).all() for name, query in _TABLES.items()}
        self._rows = found
        self._ids = {row.name: row.id for row in found["studies"]}
        self._claims = {(row.study_id, row.stage, row.trial): row for row in found["claims"]}
        self._trials = {self._trial(row): row for row in found["trials"]}

    def check(self) -> None:
        """Raises AssertionError if anything is not so."""
        self.devices_belong_to_what_runs_on_them()
        self.claims_and_attempts_belong_to_the_living()
        self.trials_are_those_of_the_claims()
        self.figures_are_those_that_were_printed()
        self.nothing_of_one_study_is_in_another()
        self.budgets_hold()

    def devices_belong_to_what_runs_on_them(self) -> None:
        held = {(row.node, row.device): row.attempt_id for row in self._rows["leases"]}
        running = {row.id for row in self._rows["attempts"] if row.state == "running"}
        there = {run.attempt.id: run for run in self._world.runs.values() if run.runs}
        for run in there.values():
            for index in run.attempt.devices.indices:
                assert held.get((run.by.node, f"cpu:{index}")) == run.attempt.id, (
                    "processes run on a device that is free"
                )
        cleaning = {run.attempt.id for run in self._world.runs.values() if not run.is_ended}
        assert set(held.values()) <= running | cleaning, "a device is held for nothing"

    def claims_and_attempts_belong_to_the_living(self) -> None:
        living = {row.id for row in self._rows["workers"]}
        known = {worker.ledger.me.id for worker in self._world.workers if not worker.is_buried}
        assert living == known
        assert {row.worker_id for row in self._rows["claims"]} <= living | {None}
        running = [row for row in self._rows["attempts"] if row.state == "running"]
        assert {row.worker_id for row in running} <= living
        for row in running:
            claim = self._claims[row.study_id, row.stage, row.trial]
            assert claim.worker_id == row.worker_id, "a worker runs what another has claimed"
        of_trials = Counter((row.study_id, row.stage, row.trial) for row in running)
        assert set(of_trials.values()) <= {1}, "a trial runs twice"

    def trials_are_those_of_the_claims(self) -> None:
        assert {name.rpartition("/")[0] for (name,) in self._rows["parts"]} == self._ids.keys()
        assert self._claims.keys() <= self._trials.keys(), "a claim has no trial"
        running = {key for key, row in self._trials.items() if row.state == "RUNNING"}
        assert running <= self._claims.keys(), "a trial runs without a claim"
        for key, row in self._claims.items():
            trial, ended = self._trials[key], json.loads(row.ended or '{"state": "RUNNING", "value": null}')
            assert trial.candidate == f'"{row.candidate}"'
            value = trial.value if trial.state == "COMPLETE" else None
            assert (trial.state, value) == (ended["state"], ended["value"]), "Optuna was told something else"
        cancelled = {(r.study_id, r.stage, r.trial) for r in self._rows["attempts"] if r.state == "cancelled"}
        assert not cancelled & self._claims.keys(), "a candidate that was given back is claimed"
        counts = Counter((study, part) for study, part, _ in self._trials)
        assert all(number < counts[study, part] for study, part, number in self._trials), "numbers have gaps"

    def figures_are_those_that_were_printed(self) -> None:
        measured = [row for row in self._rows["attempts"] if row.state == "measured"]
        by_trial = {(row.study_id, row.stage, row.trial): row for row in measured}
        assert len(by_trial) == len(measured), "a trial was measured twice"
        complete = {key: row.value for key, row in self._trials.items() if row.state == "COMPLETE"}
        assert complete == {key: row.metric for key, row in by_trial.items()}, "Optuna was told something else"
        for row in measured:
            run = self._world.runs[row.run_dir]
            assert row.metric == run.value, "a figure is not what the run printed"
            assert run.is_lost or row.worker_id == run.by.id, "somebody else recorded it"

    def nothing_of_one_study_is_in_another(self) -> None:
        for row in self._rows["attempts"]:
            run = self._world.runs[row.run_dir]
            assert (row.study_id, row.stage, row.trial) == (run.study.id, run.task.part, run.task.trial)
        for (study_id, _, _), row in self._trials.items():
            assert self._world.runs[row.run_dir.strip('"')].study.id == study_id
        for row in self._rows["reports"]:
            run = self._world.reports[row.value]
            assert self._trial(row) == (run.study.id, run.task.part, run.task.trial), "a report is on another's trial"

    def budgets_hold(self) -> None:
        for study_id in self._ids.values():
            own = [row for row in self._claims.values() if row.study_id == study_id]
            assert len(own) <= BUDGET, "the budget is exceeded"

    def all_is_done(self) -> None:
        """Raises AssertionError if anything is left to do, or to clean up."""
        self.check()
        assert self._rows["leases"] == []
        assert [row for row in self._rows["attempts"] if row.state == "running"] == []
        for row in self._rows["studies"]:
            own = [key for key in self._claims if key[0] == row.id]
            assert (row.state, len(own)) == ("finished", BUDGET)
            assert all(self._trials[key].state in ("COMPLETE", "FAIL") for key in own)

    def _trial(self, row: sa.Row) -> tuple[str, str, int]:
        study, _, part = row.study_name.rpartition("/")
        return (self._ids[study], part, row.number)
