"""Studies, workers, claims, attempts, leases, measurements."""

import sqlalchemy as sa

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "dsopt_studies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
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
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_started", sa.Float(), nullable=False),
        sa.Column("heartbeat_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_workers")),
    )
    op.create_table(
        "dsopt_attempts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.CheckConstraint(
            "state IN ('running', 'measured', 'infeasible', 'failed', 'cancelled')",
            name=op.f("ck_dsopt_attempts_state"),
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["dsopt_studies.id"], name=op.f("fk_dsopt_attempts_study_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["dsopt_workers.id"], name=op.f("fk_dsopt_attempts_worker_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_attempts")),
    )
    op.create_index(op.f("ix_dsopt_attempts_study_id"), "dsopt_attempts", ["study_id"], unique=False)
    op.create_table(
        "dsopt_claims",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=True),
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
        sa.Column("device", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["dsopt_attempts.id"], name=op.f("fk_dsopt_leases_attempt_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dsopt_leases")),
        sa.UniqueConstraint("node", "device", name=op.f("uq_dsopt_leases_node_device")),
    )
    op.create_index(op.f("ix_dsopt_leases_attempt_id"), "dsopt_leases", ["attempt_id"], unique=False)
    op.create_table(
        "dsopt_measurements",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
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


def downgrade():
    for table in ("measurements", "leases", "attempts", "claims", "workers", "studies"):
        op.drop_table(f"dsopt_{table}")
