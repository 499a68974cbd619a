"""dsopt's own tables, beside Optuna's. `alembic/versions` creates exactly these; a test compares them.

Studies, workers and attempts have random ids (`new_id`), which no database gives to anything else later. A write by
somebody whose study, worker or attempt is gone therefore meets no row. Times come from the database's own clock, as
seconds since the epoch (see `clock.now`), never as text.
"""

import uuid

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, MetaData, Table, UniqueConstraint, false

from dsopt.store.column_types import LongText, Number, ShortText, Time, WholeNumber

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


_ID = ShortText(32)


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
    Column("name", ShortText(100), nullable=False, unique=True),
    Column("spec", LongText, nullable=False),
    Column("digest", ShortText(64), nullable=False),
    Column("state", ShortText(16), nullable=False),
    Column("version", WholeNumber, nullable=False),
    Column("decisions", WholeNumber, nullable=False),
    Column("marks", LongText, nullable=False),
    Column("note", LongText),
    Column("created_at", Time, nullable=False),
    Column("finished_at", Time),
    Column("signature", LongText),
    Column("signed_by", ShortText(64)),
    _one_of("state", STUDY_STATES),
)

# `process_started` is in clock ticks since the machine's boot: no step of its clock changes it. `draining`: somebody
# asked the worker to finish its runs and to leave. `rates`: how fast its nodes are (`study/node_rates.py`).
workers = Table(
    "dsopt_workers",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("node", ShortText(255), nullable=False),
    Column("host", ShortText(255), nullable=False),
    Column("pid", WholeNumber, nullable=False),
    Column("process_started", Number, nullable=False),
    Column("dsopt_version", ShortText(32), nullable=False),
    Column("study_id", _ID),
    Column("registered_at", Time, nullable=False),
    Column("heartbeat_at", Time, nullable=False),
    Column("draining", Boolean, nullable=False, server_default=false()),
    Column("rates", LongText),
)

# One row gives one candidate to one worker. `round` is 0 in the search and 1, 2 … when it is confirmed. What the study
# knows of the trial stands here; what stands in Optuna's tables is for people. `version` is the study's when the row
# last changed; `begun` and `ended` are JSON (`store/records.py`), the latter from when its outcome is known.
claims = Table(
    "dsopt_claims",
    metadata,
    Column("id", WholeNumber, primary_key=True),
    Column("study_id", ForeignKey("dsopt_studies.id", ondelete="CASCADE"), nullable=False),
    Column("stage", ShortText(16), nullable=False),
    Column("candidate", ShortText(255), nullable=False),
    Column("round", WholeNumber, nullable=False),
    Column("trial", WholeNumber, nullable=False),
    Column("worker_id", ForeignKey("dsopt_workers.id", ondelete="SET NULL")),
    Column("version", WholeNumber, nullable=False),
    Column("begun", LongText, nullable=False),
    Column("ended", LongText),
    UniqueConstraint("study_id", "stage", "candidate", "round"),
    UniqueConstraint("study_id", "stage", "trial"),
    Index("ix_dsopt_claims_study_id_version", "study_id", "version"),
)

# One row is one launch for a claim; it keeps who ran it, and where, for good: `devices` is JSON, names by node.
attempts = Table(
    "dsopt_attempts",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("study_id", ForeignKey("dsopt_studies.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("stage", ShortText(16), nullable=False),
    Column("trial", WholeNumber, nullable=False),
    Column("candidate", ShortText(255), nullable=False),
    Column("round", WholeNumber, nullable=False),
    Column("worker_id", _ID),
    Column("node", ShortText(255)),
    Column("state", ShortText(16), nullable=False),
    Column("reason", ShortText(32)),
    Column("message", LongText),
    Column("run_dir", LongText, nullable=False),
    Column("started_at", Time, nullable=False),
    Column("finished_at", Time),
    Column("devices", LongText),
    _one_of("state", ATTEMPT_STATES),
)

# One row gives one device (or port) to one attempt, until its processes are known to be gone: it outlives the attempt,
# the worker and the study, and therefore refers to none of them. A worker that measures its node leases in its own id.
leases = Table(
    "dsopt_leases",
    metadata,
    Column("id", WholeNumber, primary_key=True),
    Column("node", ShortText(255), nullable=False),
    Column("device", ShortText(128), nullable=False),
    Column("host", ShortText(255), nullable=False),
    Column("run_dir", LongText, nullable=False),
    Column("attempt_id", _ID, nullable=False, index=True),
    UniqueConstraint("node", "device"),
)

# What a measured or slow attempt measured; `details` is what its metrics.json holds, raw step times included.
measurements = Table(
    "dsopt_measurements",
    metadata,
    Column("attempt_id", ForeignKey("dsopt_attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("metric", Number, nullable=False),
    Column("step_seconds", Number, nullable=False),
    Column("half_width_seconds", Number, nullable=False),
    Column("samples_per_second", Number, nullable=False),
    Column("peak_memory_bytes", Number, nullable=False),
    Column("details", LongText, nullable=False),
)
