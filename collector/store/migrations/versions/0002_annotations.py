"""Annotations: what was noticed about targets, for graphs and for the next start."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "annotation",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("before", sa.String(2000), nullable=False),
        sa.Column("after", sa.String(2000), nullable=False),
        sa.Column("first", sa.Boolean, nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("finding", sa.String(2000), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_annotation"),
    )
    op.create_index("ix_annotation_tier_target_what", "annotation", ["tier", "target", "what"])
    op.create_index("ix_annotation_at", "annotation", ["at"])


def downgrade() -> None:
    op.drop_table("annotation")
