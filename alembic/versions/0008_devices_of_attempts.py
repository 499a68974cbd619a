"""An attempt keeps the nodes and devices that it had."""

import sqlalchemy as sa

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("dsopt_attempts", sa.Column("devices", sa.Text()))


def downgrade():
    op.drop_column("dsopt_attempts", "devices")
