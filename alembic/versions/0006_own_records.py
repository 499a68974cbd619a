"""dsopt's own tables keep what a study knows of its trials and parts; studies count decisions."""

import json
from datetime import datetime

import sqlalchemy as sa
from optuna.distributions import json_to_distribution

from alembic import op
from dsopt.errors import DsoptError

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_LOST = {"state": "FAIL", "value": None, "at": 0.0, "attributes": {"reason": "lost", "message": "its trial is gone"}}


def upgrade():
    bind = op.get_bind()
    op.add_column("dsopt_studies", sa.Column("decisions", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("dsopt_studies", sa.Column("marks", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("dsopt_claims", sa.Column("version", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("dsopt_claims", sa.Column("begun", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("dsopt_claims", sa.Column("ended", sa.Text()))
    op.create_index("ix_dsopt_claims_study_id_version", "dsopt_claims", ["study_id", "version"])
    known = _Known(bind) if sa.inspect(bind).has_table("trials") else None
    for claim in bind.execute(sa.text("SELECT id, study_id, stage, trial, candidate, round FROM dsopt_claims")).all():
        begun, ended = known.trial(claim) if known is not None else _gone(claim)
        update = sa.text("UPDATE dsopt_claims SET begun = :begun, ended = :ended WHERE id = :id")
        kept = None if ended is None else json.dumps(ended)
        bind.execute(update, {"begun": json.dumps(begun), "ended": kept, "id": claim.id})
    if known is not None:
        known.keep_marks()


def _gone(claim):
    attributes = {"candidate": claim.candidate, "round": claim.round}
    return {"params": {}, "attributes": attributes}, _LOST


class _Known:
    """What stands in Optuna's tables."""

    def __init__(self, bind):
        self._bind = bind
        rows = bind.execute(sa.text("SELECT id, name FROM dsopt_studies")).all()
        self._names = {row.id: row.name for row in rows}
        self._parts = {row.study_name: row.study_id for row in self._all("SELECT study_name, study_id FROM studies")}

    def trial(self, claim):
        part = self._parts.get(f"{self._names[claim.study_id]}/{claim.stage}")
        query = "SELECT trial_id, state, datetime_complete FROM trials WHERE study_id = :study AND number = :number"
        [trial] = self._all(query, study=part, number=claim.trial) or [None]
        if trial is None:
            return _gone(claim)
        at = {"trial": trial.trial_id}
        attributes = {
            row.key: json.loads(row.value_json)
            for row in self._all("SELECT key, value_json FROM trial_user_attributes WHERE trial_id = :trial", **at)
        }
        query = (
            "SELECT param_name, param_value, distribution_json FROM trial_params "
            "WHERE trial_id = :trial ORDER BY param_id"
        )
        params = {
            row.param_name: json_to_distribution(row.distribution_json).to_external_repr(row.param_value)
            for row in self._all(query, **at)
        }
        begun = {"params": params, "attributes": attributes}
        if trial.state == "RUNNING":
            return begun, None
        values = self._all("SELECT value FROM trial_values WHERE trial_id = :trial", **at)
        value = values[0].value if values and trial.state == "COMPLETE" else None
        ended = {"state": trial.state, "value": value, "at": _seconds(trial.datetime_complete), "attributes": {}}
        return begun, ended

    def keep_marks(self):
        """Verdicts, and what was measured of a disk."""
        for study_id, name in self._names.items():
            marks = {}
            for part, optuna_id in self._parts.items():
                if part.rpartition("/")[0] == name:
                    query = (
                        "SELECT key, value_json FROM study_user_attributes "
                        "WHERE study_id = :study AND key IN ('verdict', 'aio')"
                    )
                    found = {row.key: json.loads(row.value_json) for row in self._all(query, study=optuna_id)}
                    if found:
                        marks[part.rpartition("/")[2]] = found
            update = sa.text("UPDATE dsopt_studies SET marks = :marks WHERE id = :id")
            self._bind.execute(update, {"marks": json.dumps(marks), "id": study_id})

    def _all(self, query, **values):
        return self._bind.execute(sa.text(query), values).all()


def _seconds(at):
    """SQLite gives text where PostgreSQL gives a time."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return 0.0 if at is None else at.timestamp()


def downgrade():
    raise DsoptError("studies of this version cannot go back to an older dsopt: restore a backup instead")
