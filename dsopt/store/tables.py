"""dsopt's own tables, beside Optuna's. `alembic/versions` creates exactly these; a test compares them.

Studies, workers and attempts have random ids (`new_id`), which no database gives to anything else later. A write by
somebody whose study, worker or attempt is gone therefore meets no row. Times come from the database's own clock, as
seconds since the epoch (see `queries.now`), never as text.
"""

import uuid

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

STUDY_STATES = ("created", "baseline", "searching", "confirming", "finished", "stopped")
ATTEMPT_STATES = ("running", "measured", "slow", "infeasible", "failed", "cancelled")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


_ID = String(32)


def new_id() -> str:
    """A random id, 32 hexadecimal digits."""
    return uuid.uuid4().hex


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


# `version` grows with every change of what a decision on the study depends on; `decisions` only with those that a plan
# for one more run does not survive. `marks` are what parts are marked with: JSON, by part and key.
studies = Table(
    "dsopt_studies",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("spec", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("decisions", Integer, nullable=False),
    Column("marks", Text, nullable=False),
    Column("note", Text),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("signature", Text),
    Column("signed_by", String(64)),
    _one_of("state", STUDY_STATES),
)

# `process_started` is in clock ticks since the machine's boot: no step of its clock changes it. `draining`: somebody
# asked the worker to finish its runs and to leave.
workers = Table(
    "dsopt_workers",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("node", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started", Float, nullable=False),
    Column("dsopt_version", String(32), nullable=False),
    Column("study_id", _ID),
    Column("registered_at", Float, nullable=False),
    Column("heartbeat_at", Float, nullable=False),
    Column("draining", Boolean, nullable=False, server_default=false()),
)

# One row gives one candidate to one worker. `round` is 0 in the search and 1, 2 … when it is confirmed. What the study
# knows of the trial stands here; what stands in Optuna's tables is for people. `version` is the study's when the row
# last changed; `begun` and `ended` are JSON (`store/records.py`), the latter from when its outcome is known.
claims = Table(
    "dsopt_claims",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey("dsopt_studies.id", ondelete="CASCADE"), nullable=False),
    Column("stage", String(16), nullable=False),
    Column("candidate", String(255), nullable=False),
    Column("round", Integer, nullable=False),
    Column("trial", Integer, nullable=False),
    Column("worker_id", ForeignKey("dsopt_workers.id", ondelete="SET NULL")),
    Column("version", Integer, nullable=False),
    Column("begun", Text, nullable=False),
    Column("ended", Text),
    UniqueConstraint("study_id", "stage", "candidate", "round"),
    UniqueConstraint("study_id", "stage", "trial"),
    Index("ix_dsopt_claims_study_id_version", "study_id", "version"),
)

# One row is one launch for a claim; it keeps who ran it, and where, for good.
attempts = Table(
    "dsopt_attempts",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("study_id", ForeignKey("dsopt_studies.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("stage", String(16), nullable=False),
    Column("trial", Integer, nullable=False),
    Column("candidate", String(255), nullable=False),
    Column("round", Integer, nullable=False),
    Column("worker_id", _ID),
    Column("node", String(255)),
    Column("state", String(16), nullable=False),
    Column("reason", String(32)),
    Column("message", Text),
    Column("run_dir", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("finished_at", Float),
    _one_of("state", ATTEMPT_STATES),
)

# One row gives one device (or port) to one attempt, until its processes are known to be gone: it outlives the attempt,
# the worker and the study, and therefore refers to none of them.
leases = Table(
    "dsopt_leases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String(255), nullable=False),
    Column("device", String(128), nullable=False),
    Column("host", String(255), nullable=False),
    Column("run_dir", Text, nullable=False),
    Column("attempt_id", _ID, nullable=False, index=True),
    UniqueConstraint("node", "device"),
)

# What a measured or slow attempt measured; `details` is what its metrics.json holds, raw step times included.
measurements = Table(
    "dsopt_measurements",
    metadata,
    Column("attempt_id", ForeignKey("dsopt_attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("metric", Float, nullable=False),
    Column("step_seconds", Float, nullable=False),
    Column("half_width_seconds", Float, nullable=False),
    Column("samples_per_second", Float, nullable=False),
    Column("peak_memory_bytes", Float, nullable=False),
    Column("details", Text, nullable=False),
)
