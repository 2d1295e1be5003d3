"""Bring a database to the schema of this build: alembic, run from inside the package."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from collector.store.session import StoreError, dispose, explain, make_writer, parse_url, shown

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 7_316_092_544  # any number that no other user of the database locks


def head() -> str:
    """Return the schema version that this build needs."""
    found = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    assert found is not None  # noqa: S101  # the package always has its first migration
    return found


def current(url: str) -> str | None:
    """Return the schema version of the database, None if it is empty.

    Raises:
        StoreError: If it cannot be read.
    """
    engine = make_writer(parse_url(url))
    try:
        return schema_version(engine)
    finally:
        dispose(engine)


def migrate(url: str) -> str:
    """Bring the database to the newest schema, whole or not at all; return its version.

    Raises:
        StoreError: If that fails; the database is then as it was.
    """
    engine = make_writer(parse_url(url))
    try:
        upgrade(engine)
    finally:
        dispose(engine)
    return head()


def schema_version(engine: Engine) -> str | None:
    """Return the schema version behind `engine` (`StoreError` as `current`)."""
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except SQLAlchemyError as error:
        msg = f"store {shown(engine.url)}: cannot be opened: {explain(error)}"
        raise StoreError(msg) from error


def upgrade(engine: Engine) -> None:
    """Run the missing migrations in one transaction (`StoreError` as `migrate`)."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    try:
        with engine.begin() as connection:
            _wait_for_turn(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        msg = f"store {shown(engine.url)}: migration to {head()} failed: {explain(error)}"
        raise StoreError(msg) from error


def check(engine: Engine) -> None:
    """Make the schema of an empty database; refuse one of another version.

    Raises:
        StoreError: If the schema is older or newer than this build's; says what to do.
    """
    found = schema_version(engine)
    if found == head():
        return
    if found is None:
        upgrade(engine)
        return
    known = {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}
    remedy = (
        "back it up, then run 'fusewire migrate'"
        if found in known
        else "it was made by a newer release: install that, or restore a backup"
    )
    msg = f"store {shown(engine.url)}: schema {found}, this build needs {head()}; {remedy}"
    raise StoreError(msg)


def _wait_for_turn(connection: Connection) -> None:
    """Let one process migrate at a time; on SQLite the write lock does it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
