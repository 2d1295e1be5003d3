"""The one row that says who decides, under which epoch, and where the audit chain ends."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from collector.store.models import ControllerRow
from collector.store.session import StoreError

_ONLY: Final = 1


def controller(session: Session, *, locked: bool = False) -> ControllerRow:
    """Return the controller row; `locked` holds it against other writers until the commit.

    Raises:
        StoreError: If the row is gone: somebody removed it by hand.
    """
    wanted = select(ControllerRow).where(ControllerRow.id == _ONLY)
    if locked:
        wanted = wanted.with_for_update()
    row = session.scalars(wanted.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        msg = (
            "store: table controller has lost its row, without it epochs cannot rise; "
            "restore a backup"
        )
        raise StoreError(msg)
    return row


def raise_epoch(session: Session) -> int:
    """Raise the epoch by one and return it: writers of an earlier epoch are fenced from now on."""
    row = controller(session, locked=True)
    row.epoch += 1
    session.flush()
    return row.epoch


def check_epoch(session: Session, epoch: int) -> None:
    """Refuse a writer that another controller has replaced.

    The row stays locked until the commit, so no epoch begins in between.

    Raises:
        StoreError: If the epoch in force is a later one.
    """
    row = controller(session, locked=True)
    if row.epoch != epoch:
        msg = (
            f"store: epoch {row.epoch} is in force, this controller is of epoch {epoch}: another "
            "one has taken over; stop this process, or restart it to take over again"
        )
        raise StoreError(msg)


def touch(session: Session) -> None:
    """Write the controller row as it is: a write that changes nothing, to see whether one can."""
    session.execute(update(ControllerRow).values(epoch=ControllerRow.epoch))
