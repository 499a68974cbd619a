"""A worker may be asked to finish its runs and to leave."""

import sqlalchemy as sa

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("dsopt_workers", sa.Column("draining", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade():
    op.drop_column("dsopt_workers", "draining")
