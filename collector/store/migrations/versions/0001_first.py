"""The first schema.

Types are spelled out here and not taken from the models, which move on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _control()
    _outbox()
    _observations()
    op.execute(
        "INSERT INTO controller (id, epoch, audit_number, audit_hash, holder, lease_epoch)"
        " VALUES (1, 0, 0, '', '', 0)"
    )


def downgrade() -> None:
    for table in (
        *("verdict", "tick_count", "baseline", "token", "override", "delivery"),
        *("checkpoint", "transition", "breaker", "controller"),
    ):
        op.drop_table(table)


def _control() -> None:
    op.create_table(
        "controller",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("audit_number", sa.BigInteger, nullable=False),
        sa.Column("audit_hash", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(2000), nullable=False),
        sa.Column("lease_epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_expires_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_controller"),
    )
    op.create_table(
        "breaker",
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("admit_ratio", sa.Double, nullable=False),
        sa.Column("ramp_step", sa.Integer, nullable=False),
        sa.Column("trip_level", sa.Integer, nullable=False),
        sa.Column("good_evaluations", sa.Integer, nullable=False),
        sa.Column("changed_at", MOMENT),
        sa.Column("open_until", MOMENT),
        sa.Column("half_open_deadline", MOMENT),
        sa.Column("lease_expires_at", MOMENT),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("override", sa.Text),
        sa.Column("level_since", MOMENT),
        sa.Column("recent_opens", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tier", "target", name="pk_breaker"),
    )
    op.create_table(
        "transition",
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_transition"),
    )
    op.create_index("ix_transition_tier_target_at", "transition", ["tier", "target", "at"])
    op.create_index("ix_transition_at", "transition", ["at"])
    op.create_table(
        "checkpoint",
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("made_at", MOMENT, nullable=False),
        sa.Column("place", sa.String(2000), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_checkpoint"),
    )


def _outbox() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("claimed_until", MOMENT),
        sa.Column("settled_at", MOMENT),
        sa.Column("problem", sa.String(2000), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_delivery"),
    )
    op.create_index("ix_delivery_status_due_at", "delivery", ["status", "due_at"])
    op.create_index(
        "ix_delivery_endpoint_tier_target_status",
        "delivery",
        ["endpoint", "tier", "target", "status"],
    )
    op.create_index("ix_delivery_created_at", "delivery", ["created_at"])
    op.create_table(
        "override",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("forced", sa.String(16), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.String(2000), nullable=False),
        sa.Column("since", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT),
        sa.Column("handed_epoch", sa.BigInteger),
        sa.Column("taken_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_override"),
    )
    op.create_index("ix_override_taken_at", "override", ["taken_at"])
    op.create_table(
        "token",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("note", sa.String(2000), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT),
        sa.Column("revoked_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
    )
    op.create_index("uq_token_hash", "token", ["hash"], unique=True)


def _observations() -> None:
    op.create_table(
        "baseline",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("scope", sa.String(264), nullable=False),
        sa.Column("variant", sa.String(64), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("made_at", MOMENT, nullable=False),
        sa.Column("promoted_at", MOMENT),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("provenance", sa.String(2000), nullable=False),
        sa.Column("author", sa.String(128), nullable=False),
        sa.Column("reason", sa.String(2000), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_baseline"),
    )
    op.create_index(
        "ix_baseline_tier_scope_variant_made_at",
        "baseline",
        ["tier", "scope", "variant", "made_at"],
    )
    op.create_index(
        "uq_baseline_active",
        "baseline",
        ["tier", "scope", "variant"],
        unique=True,
        sqlite_where=sa.text("stage = 'active'"),
        postgresql_where=sa.text("stage = 'active'"),
    )
    op.create_table(
        "tick_count",
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("scope", sa.String(264), nullable=False),
        sa.Column("variant", sa.String(64), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("start", MOMENT, nullable=False),
        sa.Column("duration_seconds", sa.Double, nullable=False),
        sa.Column("age_seconds", sa.Double, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("coarse", sa.Boolean, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tier", "scope", "variant", "number", name="pk_tick_count"),
    )
    op.create_index("ix_tick_count_start", "tick_count", ["start"])
    op.create_index(
        "ix_tick_count_tier_scope_variant_start",
        "tick_count",
        ["tier", "scope", "variant", "start"],
    )
    op.create_table(
        "verdict",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("tier", sa.String(128), nullable=False),
        sa.Column("scope", sa.String(264), nullable=False),
        sa.Column("signal", sa.String(64), nullable=False),
        sa.Column("variant", sa.String(64), nullable=False),
        sa.Column("detector", sa.String(64), nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("changed", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.Double) for name in ("statistic", "effect", "threshold", "evidence")),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("age_seconds", sa.Double, nullable=False),
        sa.Column("baseline", sa.String(64), nullable=False),
        sa.Column("cause", sa.String(64), nullable=False),
        sa.Column("reason", sa.String(2000), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_verdict"),
    )
    op.create_index("ix_verdict_tier_at", "verdict", ["tier", "at"])
    op.create_index("ix_verdict_tier_scope_signal_at", "verdict", ["tier", "scope", "signal", "at"])
    op.create_index("ix_verdict_at", "verdict", ["at"])
