"""Random ids for studies, workers and attempts; leases that outlive them; a number for each change of a study."""

import uuid

import sqlalchemy as sa

from alembic import op
from dsopt.errors import DsoptError

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_OLD = ("studies", "claims", "attempts", "measurements")
# those of revision 0002 again: a trigger goes with its table
_SQLITE = (
    """
    CREATE TRIGGER dsopt_attempt_is_final BEFORE UPDATE OF state, reason, message, finished_at ON dsopt_attempts
    WHEN OLD.state <> 'running'
    BEGIN
        SELECT RAISE(ABORT, 'a finished attempt never changes');
    END
    """,
)
_POSTGRES = (
    """
    CREATE TRIGGER dsopt_attempt_is_final BEFORE UPDATE OF state, reason, message, finished_at ON dsopt_attempts
    FOR EACH ROW WHEN (OLD.state <> 'running') EXECUTE FUNCTION dsopt_attempt_is_final()
    """,
    """
    CREATE FUNCTION dsopt_tell_change() RETURNS trigger AS $$
    BEGIN
        PERFORM pg_notify('dsopt', NEW.id);
        RETURN NULL;
    END
    $$ LANGUAGE plpgsql
    """,
    """
    CREATE TRIGGER dsopt_tell_change AFTER INSERT OR UPDATE ON dsopt_studies
    FOR EACH ROW EXECUTE FUNCTION dsopt_tell_change()
    """,
)


def upgrade():
    bind = op.get_bind()
    kept = {table: _rows(bind, table) for table in _OLD}
    for table in ("measurements", "leases", "attempts", "claims", "workers", "studies"):
        op.drop_table(f"dsopt_{table}")
    _create()
    for statement in _SQLITE if bind.dialect.name == "sqlite" else _POSTGRES:
        op.execute(statement)
    _fill(bind, kept)


def _rows(bind, table):
    return [dict(row) for row in bind.execute(sa.text(f"SELECT * FROM dsopt_{table}")).mappings()]  # noqa: S608


def _create():
    identity = sa.String(length=32)
    op.create_table(
        "dsopt_studies",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.CheckConstraint(
            "state IN ('created', 'baseline', 'searching', 'confirming', 'finished', 'stopped')",
            name=op.f("ck_dsopt_studies_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_studies")),
        sa.UniqueConstraint("name", name=op.f("uq_dsopt_studies_name")),
    )
    op.create_table(
        "dsopt_workers",
        sa.Column("id", identity, nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_started", sa.Float(), nullable=False),
        sa.Column("dsopt_version", sa.String(length=32), nullable=False),
        sa.Column("study_id", identity, nullable=True),
        sa.Column("registered_at", sa.Float(), nullable=False),
        sa.Column("heartbeat_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_workers")),
    )
    op.create_table(
        "dsopt_attempts",
        sa.Column("id", identity, nullable=False),
        sa.Column("study_id", identity, nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("worker_id", identity, nullable=True),
        sa.Column("node", sa.String(length=255), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.CheckConstraint(
            "state IN ('running', 'measured', 'slow', 'infeasible', 'failed', 'cancelled')",
            name=op.f("ck_dsopt_attempts_state"),
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["dsopt_studies.id"], name=op.f("fk_dsopt_attempts_study_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_attempts")),
    )
    op.create_index(op.f("ix_dsopt_attempts_study_id"), "dsopt_attempts", ["study_id"], unique=False)
    op.create_table(
        "dsopt_claims",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", identity, nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("worker_id", identity, nullable=True),
        sa.ForeignKeyConstraint(
            ["study_id"], ["dsopt_studies.id"], name=op.f("fk_dsopt_claims_study_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["dsopt_workers.id"], name=op.f("fk_dsopt_claims_worker_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_claims")),
        sa.UniqueConstraint(
            "study_id", "stage", "candidate", "round", name=op.f("uq_dsopt_claims_study_id_stage_candidate_round")
        ),
        sa.UniqueConstraint("study_id", "stage", "trial", name=op.f("uq_dsopt_claims_study_id_stage_trial")),
    )
    op.create_table(
        "dsopt_leases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("device", sa.String(length=128), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("attempt_id", identity, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_leases")),
        sa.UniqueConstraint("node", "device", name=op.f("uq_dsopt_leases_node_device")),
    )
    op.create_index(op.f("ix_dsopt_leases_attempt_id"), "dsopt_leases", ["attempt_id"], unique=False)
    op.create_table(
        "dsopt_measurements",
        sa.Column("attempt_id", identity, nullable=False),
        sa.Column("metric", sa.Float(), nullable=False),
        sa.Column("step_seconds", sa.Float(), nullable=False),
        sa.Column("half_width_seconds", sa.Float(), nullable=False),
        sa.Column("samples_per_second", sa.Float(), nullable=False),
        sa.Column("peak_memory_bytes", sa.Float(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["dsopt_attempts.id"], name=op.f("fk_dsopt_measurements_attempt_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_dsopt_measurements")),
    )


def _fill(bind, kept):
    """Puts back what was there under new ids. No worker lives, so runs that are not over are lost."""
    studies = {row["id"]: uuid.uuid4().hex for row in kept["studies"]}
    attempts = {row["id"]: uuid.uuid4().hex for row in kept["attempts"]}
    rows = {
        "studies": [{**row, "id": studies[row["id"]], "version": 0} for row in kept["studies"]],
        "claims": [
            # numbered anew by the database, which would not know of numbers that it has not given
            {key: value for key, value in row.items() if key != "id"}
            | {"study_id": studies[row["study_id"]], "worker_id": None}
            for row in kept["claims"]
        ],
        "attempts": [
            {**_ended(row), "id": attempts[row["id"]], "study_id": studies[row["study_id"]], "worker_id": None}
            for row in sorted(kept["attempts"], key=lambda row: row["id"])
        ],
        "measurements": [{**row, "attempt_id": attempts[row["attempt_id"]]} for row in kept["measurements"]],
    }
    for table, values in rows.items():
        if values:
            reflected = sa.Table(f"dsopt_{table}", sa.MetaData(), autoload_with=bind)
            bind.execute(sa.insert(reflected), values)


def _ended(row):
    if row["state"] != "running":
        return {**row, "node": None}
    end = {"state": "failed", "reason": "lost", "message": "its worker died while it ran"}
    return {**row, **end, "finished_at": row["started_at"], "node": None}


def downgrade():
    raise DsoptError("studies of this version cannot go back to an older dsopt: restore a backup instead")
