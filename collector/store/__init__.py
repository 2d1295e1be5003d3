"""Durable state: SQLAlchemy models, the journal, history, snapshots, the lock."""
