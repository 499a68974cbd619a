"""What a worker has measured of its node is kept with it."""

import sqlalchemy as sa

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("dsopt_workers", sa.Column("rates", sa.Text()))


def downgrade():
    op.drop_column("dsopt_workers", "rates")
