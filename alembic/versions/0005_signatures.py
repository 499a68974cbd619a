"""A study may be signed: its signature, and the fingerprint of the key that made it."""

import sqlalchemy as sa

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("dsopt_studies", sa.Column("signature", sa.Text()))
    op.add_column("dsopt_studies", sa.Column("signed_by", sa.String(64)))


def downgrade():
    op.drop_column("dsopt_studies", "signed_by")
    op.drop_column("dsopt_studies", "signature")
