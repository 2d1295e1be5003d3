"""Alembic's entry point; always online, on the connection that `migration.py` hands over."""

from alembic import context

from collector.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
    compare_type=True,
)
context.run_migrations()
