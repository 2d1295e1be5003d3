"""`check-config`, `migrate`, `serve`, and exit codes of the real process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collector import app
from tests.collector.cli.world import a_world

pytestmark = pytest.mark.slow


def test_a_good_configuration_is_summed_up(tmp_path: Path) -> None:
    done = a_world(tmp_path, store=False).run("check-config")

    assert done.exit_code == 0
    assert "good: 2 tiers, 3 targets, 0 webhooks, observing only" in done.output


def test_every_problem_of_a_bad_configuration_is_listed_with_exit_code_2(tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)
    world.config.write_text("mode: enforced\ntick: 5\n", encoding="utf-8")

    done = world.run("check-config")

    assert done.exit_code == 2
    assert "3 problems" in done.stderr
    assert "line 1: mode: got 'enforced'" in done.stderr
    assert done.stdout == ""


def test_problems_come_as_json(tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)
    world.config.write_text("mode: enforced\ntiers: {a: {targets: [http://a]}}\n", encoding="utf-8")

    done = world.run("check-config", "--json")

    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"]) == (2, False)
    assert [(one["path"], one["line"]) for one in answer["problems"]] == [("mode", 1)]


def test_a_good_configuration_as_json_has_no_problems(tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)

    done = world.run("check-config", str(world.config), "--json")

    assert json.loads(done.stdout) == {"file": str(world.config), "ok": True, "problems": []}


def test_migrate_makes_the_store(tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)

    done = world.run("migrate")

    assert done.exit_code == 0
    assert (tmp_path / "fusewire.db").exists()


def test_migrate_says_why_it_cannot(tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)
    (tmp_path / "fusewire.db").write_text("not a database, but long enough" * 100, encoding="utf-8")

    done = world.run("migrate")

    assert done.exit_code == 2
    assert "not a database" in done.stderr


def test_serve_ends_with_the_exit_code_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path, store=False)
    seen: list[Path] = []

    def served(path: Path) -> int:
        seen.append(path)
        return 2

    monkeypatch.setattr(app, "serve", served)

    done = world.run("serve")

    assert (done.exit_code, seen) == (2, [world.config])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, "fusewire 0"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["check-config", "nowhere.yaml"], 2, "No such file"),
        (["breaker", "open", "chat", "--reason", "x", "--for", "10"], 2, "is not a duration"),
    ],
)
def test_the_process_ends_with_the_exit_code_that_is_promised(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    command = [sys.executable, "-c", "from collector.cli import main; main()", *arguments]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
