"""The tables. Names of constraints come from a convention, so migrations are alike everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from sqlalchemy import BigInteger, Double, Index, Integer, LargeBinary, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from alerts.breaker.records import DeliveryStatus, State
from collector.store.columns import (
    CODE_LENGTH,
    PERSON_LENGTH,
    PROSE_LENGTH,
    SCOPE_LENGTH,
    TARGET_LENGTH,
    TIER_LENGTH,
    Name,
    Numbers,
    Prose,
    UtcDateTime,
    Words,
    text_enum,
)
from detectors.baseline import Stage
from detectors.records import Level

Number = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER numbers itself on SQLite


class Base(DeclarativeBase):
    """All tables of the store."""

    type_annotation_map: ClassVar = {float: Double}  # eight bytes on every database
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class BaselineRow(Base):
    """One frozen baseline; only its stage, author and reason ever change.

    The partial index holds what matters: at most one active baseline of a lane.
    """

    __tablename__ = "baseline"
    __table_args__ = (
        Index(None, "tier", "scope", "variant", "made_at"),
        Index(
            "uq_baseline_active",
            *("tier", "scope", "variant"),
            unique=True,
            sqlite_where="stage = 'active'",
            postgresql_where="stage = 'active'",
        ),
    )

    id: Mapped[str] = mapped_column(Name(64), primary_key=True)
    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH))
    scope: Mapped[str] = mapped_column(Name(SCOPE_LENGTH))
    variant: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    stage: Mapped[Stage] = mapped_column(text_enum(Stage))
    made_at: Mapped[datetime] = mapped_column(UtcDateTime)
    promoted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    requests: Mapped[int] = mapped_column(BigInteger)
    provenance: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    author: Mapped[str] = mapped_column(Prose(PERSON_LENGTH))
    reason: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    body: Mapped[bytes] = mapped_column(LargeBinary)


class TickRow(Base):
    """Counts of all request signals of a lane over one tick, or of a minute once coarsened."""

    __tablename__ = "tick_count"
    __table_args__ = (Index(None, "start"), Index(None, "tier", "scope", "variant", "start"))

    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH), primary_key=True)
    scope: Mapped[str] = mapped_column(Name(SCOPE_LENGTH), primary_key=True)
    variant: Mapped[str] = mapped_column(Name(CODE_LENGTH), primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    start: Mapped[datetime] = mapped_column(UtcDateTime)
    duration_seconds: Mapped[float]
    age_seconds: Mapped[float]
    requests: Mapped[int] = mapped_column(BigInteger)
    coarse: Mapped[bool]
    counts: Mapped[bytes] = mapped_column(LargeBinary)


class VerdictRow(Base):
    """One verdict of the history; `changed` marks a change of level, the rest is a thinned series.

    Rows are only ever added, and removed by age.
    """

    __tablename__ = "verdict"
    __table_args__ = (
        Index(None, "tier", "at"),
        Index(None, "tier", "scope", "signal", "at"),
        Index(None, "at"),
    )

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH))
    scope: Mapped[str] = mapped_column(Name(SCOPE_LENGTH))
    signal: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    variant: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    detector: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    level: Mapped[Level] = mapped_column(text_enum(Level))
    changed: Mapped[bool]
    statistic: Mapped[float | None]
    effect: Mapped[float | None]
    threshold: Mapped[float | None]
    evidence: Mapped[float | None]
    samples: Mapped[int] = mapped_column(BigInteger)
    age_seconds: Mapped[float]
    baseline: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    cause: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    reason: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    details: Mapped[Mapping[str, float]] = mapped_column(Numbers)


class AnnotationRow(Base):
    """Something noticed about a target; `times` where the row stands for several in a short while.

    `first` marks what was known for the first time. Rows are only ever added, and removed by age.
    """

    __tablename__ = "annotation"
    __table_args__ = (Index(None, "tier", "target", "what"), Index(None, "at"))

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH))
    target: Mapped[str] = mapped_column(Name(TARGET_LENGTH))
    what: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    before: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    after: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    first: Mapped[bool]
    times: Mapped[int] = mapped_column(BigInteger)
    finding: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))


class BreakerRow(Base):
    """The present state of one breaker; `target` is empty for the breaker of the tier."""

    __tablename__ = "breaker"

    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH), primary_key=True)
    target: Mapped[str] = mapped_column(Name(TARGET_LENGTH), primary_key=True)
    state: Mapped[State] = mapped_column(text_enum(State))
    admit_ratio: Mapped[float]
    ramp_step: Mapped[int]
    trip_level: Mapped[int]
    good_evaluations: Mapped[int]
    changed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    open_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    half_open_deadline: Mapped[datetime | None] = mapped_column(UtcDateTime)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    epoch: Mapped[int] = mapped_column(BigInteger)
    seq: Mapped[int] = mapped_column(BigInteger)
    cause: Mapped[str | None] = mapped_column(Text)
    override: Mapped[str | None] = mapped_column(Text)
    level_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    recent_opens: Mapped[str] = mapped_column(Text)


class TransitionRow(Base):
    """One audit row. `content` is the whole transition; `hash` is over it and `previous_hash`.

    Numbers have no gaps: the row's number is the last one plus one, in the same transaction.
    """

    __tablename__ = "transition"
    __table_args__ = (Index(None, "tier", "target", "at"), Index(None, "at"))

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH))
    target: Mapped[str] = mapped_column(Name(TARGET_LENGTH))
    kind: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    content: Mapped[str] = mapped_column(Text)
    previous_hash: Mapped[str] = mapped_column(Name(64))
    hash: Mapped[str] = mapped_column(Name(64))


class CheckpointRow(Base):
    """The audit up to `number` has been exported; retention may cut up to here and no further."""

    __tablename__ = "checkpoint"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    hash: Mapped[str] = mapped_column(Name(64))
    made_at: Mapped[datetime] = mapped_column(UtcDateTime)
    place: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))


class DeliveryRow(Base):
    """One row of the outbox: the exact bytes for one endpoint, and how far they got."""

    __tablename__ = "delivery"
    __table_args__ = (
        Index(None, "status", "due_at"),
        Index(None, "endpoint", "tier", "target", "status"),
        Index(None, "created_at"),
    )

    id: Mapped[str] = mapped_column(Name(CODE_LENGTH), primary_key=True)
    endpoint: Mapped[str] = mapped_column(Name(CODE_LENGTH))
    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH))
    target: Mapped[str] = mapped_column(Name(TARGET_LENGTH))
    epoch: Mapped[int] = mapped_column(BigInteger)
    seq: Mapped[int] = mapped_column(BigInteger)
    body: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    status: Mapped[DeliveryStatus] = mapped_column(text_enum(DeliveryStatus))
    attempts: Mapped[int]
    claimed_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    settled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    problem: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))


class OverrideRow(Base):
    """A request left for the service while it was down; an empty `forced` is a release.

    `handed_epoch` is the epoch of the controller that has seen it, `taken_at` when its answer was
    recorded: a controller that died in between leaves it to the next one.
    """

    __tablename__ = "override"
    __table_args__ = (Index(None, "taken_at"),)

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    tier: Mapped[str] = mapped_column(Name(TIER_LENGTH))
    target: Mapped[str] = mapped_column(Name(TARGET_LENGTH))
    forced: Mapped[str] = mapped_column(Name(16))
    actor: Mapped[str] = mapped_column(Prose(PERSON_LENGTH))
    reason: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    since: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    handed_epoch: Mapped[int | None] = mapped_column(BigInteger)
    taken_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class TokenRow(Base):
    """An access token; only its hash is kept."""

    __tablename__ = "token"
    __table_args__ = (Index("uq_token_hash", "hash", unique=True),)

    id: Mapped[str] = mapped_column(Name(CODE_LENGTH), primary_key=True)
    hash: Mapped[str] = mapped_column(Name(64))
    role: Mapped[str] = mapped_column(Name(16))
    scopes: Mapped[tuple[str, ...]] = mapped_column(Words)
    note: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ControllerRow(Base):
    """One row: who decides, under which epoch, and the head of the audit chain.

    `epoch` rises with every start and fences writers of an earlier one. The lease (PostgreSQL
    only; SQLite has a file lock) is `holder`, `lease_epoch` and `lease_expires_at`.
    """

    __tablename__ = "controller"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(BigInteger)
    audit_number: Mapped[int] = mapped_column(BigInteger)
    audit_hash: Mapped[str] = mapped_column(Name(64))
    holder: Mapped[str] = mapped_column(Prose(PROSE_LENGTH))
    lease_epoch: Mapped[int] = mapped_column(BigInteger)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
