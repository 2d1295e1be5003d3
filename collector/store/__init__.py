"""Durable state: SQLAlchemy models, the journal, history, snapshots, the lock."""

from collector.store.store import Store

__all__ = ["Store"]
