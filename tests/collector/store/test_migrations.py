"""Migrations make what the models say, from inside the package, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

import collector.store.migration as subject
from collector.store.migration import current, head, migrate
from collector.store.models import Base
from collector.store.session import StoreError, dispose, make_writer, parse_url

ROOT = Path(__file__).parents[3]


def test_an_empty_database_has_no_version_and_gets_the_newest(empty_url: str) -> None:
    before = current(empty_url)

    made = migrate(empty_url)

    assert (before, made, current(empty_url)) == (None, head(), head())


def test_migrating_twice_changes_nothing(empty_url: str) -> None:
    migrate(empty_url)

    assert migrate(empty_url) == head()


def test_models_and_migrations_agree(empty_url: str) -> None:
    migrate(empty_url)
    engine = make_writer(parse_url(empty_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})

        difference = compare_metadata(context, Base.metadata)

    dispose(engine)
    assert difference == []


def test_a_comparison_sees_a_missing_column(empty_url: str) -> None:
    migrate(empty_url)
    engine = make_writer(parse_url(empty_url))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE token DROP COLUMN note"))
        context = MigrationContext.configure(connection, opts={"compare_type": True})

        difference = compare_metadata(context, Base.metadata)

    dispose(engine)
    assert [change[0] for change in difference] == ["add_column"]


def test_the_way_back_leaves_nothing(empty_url: str) -> None:
    migrate(empty_url)
    engine = make_writer(parse_url(empty_url))
    config = Config()
    config.set_main_option("script_location", str(Path(subject.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    left = inspect(engine).get_table_names()

    dispose(engine)
    assert left == ["alembic_version"]


def test_a_store_of_the_first_schema_is_brought_to_the_newest_with_its_rows(
    empty_url: str,
) -> None:
    engine = make_writer(parse_url(empty_url))
    config = Config()
    config.set_main_option("script_location", str(Path(subject.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(text("UPDATE controller SET epoch = 7"))

    made = migrate(empty_url)

    with engine.connect() as connection:
        epoch = connection.execute(text("SELECT epoch FROM controller")).scalar_one()
    names = inspect(engine).get_table_names()
    dispose(engine)
    assert (made, epoch) == (head(), 7)
    assert "annotation" in names


def test_a_migration_that_fails_leaves_the_database_as_it_was(empty_sqlite_url: str) -> None:
    engine = make_writer(parse_url(empty_sqlite_url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE verdict (mine int)"))  # in the way, late

    with pytest.raises(StoreError, match="migration to 0002 failed: table verdict already exists"):
        migrate(empty_sqlite_url)

    assert inspect(engine).get_table_names() == ["verdict"]
    dispose(engine)


@pytest.mark.slow
def test_processes_that_migrate_at_once_do_not_disturb_each_other(empty_postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(migrate, [empty_postgres_url] * 4))

    assert made == [head()] * 4


def test_a_url_of_another_database_is_refused() -> None:
    with pytest.raises(StoreError, match=r"'mysql' is not a database .* expected sqlite:///PATH"):
        migrate("mysql://localhost/x")


def test_what_is_not_a_url_is_refused_without_showing_it() -> None:
    with pytest.raises(StoreError, match="the URL cannot be read") as caught:
        migrate("secret")

    assert "secret" not in str(caught.value)


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist; make it first"):
        migrate(f"sqlite:///{tmp_path}/nowhere/store.db")


@pytest.mark.slow
def test_the_installed_wheel_brings_its_migrations(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    program = (
        "import collector.store.migration as m; print(m.__file__);"
        f"print(m.migrate('sqlite:///{tmp_path}/wheel.db'))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )

    where, version = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed)
    assert version == head()
