"""`audit show|verify|export`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from alerts.breaker.records import Breaker, Key, Override, State, Transition
from collector.store import audit
from tests.builders import START
from tests.collector.cli.world import a_world, an_open_breaker, writing


def test_transitions_are_shown_newest_first(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world)

    done = world.run("audit", "show", "--tier", "chat")

    assert done.exit_code == 0
    assert "breaker=chat/b  kind=open  state=closed -> open  admits=0  by=auto" in done.stdout


def test_under_an_override_the_machine_is_shown_as_well(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    key = Key("chat", "b")
    hand = Override("forced_closed", "kim", "trying it", START, START + timedelta(hours=1))
    before = Breaker(key, override=hand)
    after = Breaker(key, State.OPEN, admit_ratio=0.0, epoch=1, seq=1, override=hand)
    with writing(world) as session:
        audit.append(session, [Transition(key, "open", START, "auto", before, after, "full")])

    done = world.run("audit", "show")

    assert (
        "kind=open  state=forced_closed -> forced_closed  admits=1  "
        "by_itself=closed -> open, admits 0  by=auto" in done.stdout
    )


def test_transitions_come_as_json(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world, rows=3)

    done = world.run("audit", "show", "--json", "--limit", "2")

    assert [one["kind"] for one in json.loads(done.stdout)] == ["open", "open"]


def test_a_chain_that_holds_is_said_to(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world, rows=3)

    done = world.run("audit", "verify")

    assert done.exit_code == 0
    assert "the audit holds: 3 rows, 1 to 3" in done.stdout


def test_a_changed_row_is_exit_code_1(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world, rows=3)
    with writing(world) as session:
        session.execute(text("UPDATE transition SET kind = 'closed' WHERE number = 2"))

    done = world.run("audit", "verify")

    assert done.exit_code == 1
    assert "row 2 was changed" in done.stderr


def test_an_export_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world, rows=3)

    first = world.run("audit", "export", "--out", str(tmp_path / "first.jsonl"))
    nothing = world.run("audit", "export", "--out", str(tmp_path / "nothing.jsonl"))
    an_open_breaker(world, rows=2)
    second = world.run("audit", "export", "--out", str(tmp_path / "second.jsonl"))

    assert [done.exit_code for done in (first, nothing, second)] == [0, 0, 0]
    lines = (tmp_path / "first.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3]
    lines = (tmp_path / "second.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["number"] for line in lines] == [4, 5]
    assert not (tmp_path / "nothing.jsonl").exists()
    assert world.run("audit", "verify").exit_code == 0


def test_an_export_to_stdout_notes_no_checkpoint(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world, rows=2)

    once = world.run("audit", "export")
    again = world.run("audit", "export")

    assert once.stdout == again.stdout
    assert len(once.stdout.splitlines()) == 2
    assert len(world.run("audit", "export", "--after", "1").stdout.splitlines()) == 1


def test_an_export_never_overwrites(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world)
    (tmp_path / "kept.jsonl").write_text("kept", encoding="utf-8")

    done = world.run("audit", "export", "--out", str(tmp_path / "kept.jsonl"))

    assert done.exit_code == 2
    assert (tmp_path / "kept.jsonl").read_text(encoding="utf-8") == "kept"
