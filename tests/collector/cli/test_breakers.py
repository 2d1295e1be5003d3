"""`breaker` and `release`, with the service and without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alerts.breaker.records import Key
from collector.store import overrides
from collector.store.overrides import Request
from tests.collector.cli.world import (
    World,
    a_service,
    a_world,
    an_open_breaker,
    breaker_answer,
    state_answer,
    writing,
)

pytestmark = pytest.mark.slow


def left(world: World) -> list[Request]:
    with writing(world) as session:
        return overrides.waiting(session)


def test_without_a_service_an_override_is_left_in_the_database(tmp_path: Path) -> None:
    world = a_world(tmp_path)

    done = world.run(
        *("breaker", "open", "chat/b", "--reason", "bad disk", "--for", "10m", "--actor", "kim")
    )

    assert done.exit_code == 0
    assert "left in the database" in done.output
    (request,) = left(world)
    assert request.override is not None
    assert (request.key, request.override.forced) == (Key("chat", "b"), "forced_open")
    assert (request.actor, request.reason) == ("kim", "bad disk")
    assert (request.override.expires_at - request.override.since).total_seconds() == 600


def test_a_release_without_a_service_is_left_as_one(tmp_path: Path) -> None:
    world = a_world(tmp_path)

    done = world.run("breaker", "release", "chat", "--reason", "fixed")

    assert done.exit_code == 0
    (request,) = left(world)
    assert (request.key, request.override) == (Key("chat"), None)


def test_release_forces_every_breaker_of_the_tier_closed(tmp_path: Path) -> None:
    world = a_world(tmp_path)

    done = world.run("release", "--tier", "chat")

    assert done.exit_code == 0
    found = {str(one.key): one.override and one.override.forced for one in left(world)}
    assert found == {
        "chat": "forced_closed",
        "chat/127.0.0.1:8000": "forced_closed",
        "chat/b": "forced_closed",
    }


def test_release_of_all_reaches_every_tier(tmp_path: Path) -> None:
    world = a_world(tmp_path)

    done = world.run("release", "--all", "--for", "1h")

    assert done.exit_code == 0
    assert {one.key.tier for one in left(world)} == {"chat", "code"}
    assert len(left(world)) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["breaker", "open", "chta", "--reason", "x"], "there is no tier 'chta'"),
        (["breaker", "open", "chat/z", "--reason", "x"], "tier 'chat' has no target 'z'"),
        (["breaker", "open", "chat", "--reason", " "], "write a few words"),
        (["breaker", "open", "chat"], "Missing option '--reason'"),
        (
            ["breaker", "close", "chat", "--reason", "x", "--for", "30d"],
            "--for 30d: expected more than 0 and at most 24h, the longest override of tier 'chat'",
        ),
        (["breaker", "close", "chat", "--reason", "x", "--for", "0s"], "--for 0s: expected more"),
        (["release", "--all", "--for", "0s"], "--for 0s: expected more than 0"),
        (["release"], "name one of --tier and --all"),
        (["release", "--all", "--tier", "chat"], "name one of --tier and --all"),
    ],
)
def test_what_makes_no_sense_is_refused_with_exit_code_2(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    world = a_world(tmp_path)

    done = world.run(*arguments)

    assert done.exit_code == 2
    assert said in done.stderr
    assert left(world) == []


def test_without_service_and_database_nothing_is_made(tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)

    done = world.run("breaker", "open", "chat", "--reason", "x")

    assert done.exit_code == 2
    assert "does not exist yet" in done.stderr
    assert not (tmp_path / "fusewire.db").exists()


def test_breakers_are_listed_from_the_database_when_the_service_is_silent(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world)

    done = world.run("breaker", "list")

    assert done.exit_code == 0
    assert "name=chat/b  state=open  admits=0" in done.stdout
    assert "3 of the last 5" in done.stdout
    assert "from the database" in done.stderr


def test_breakers_come_as_json(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world)

    done = world.run("breaker", "list", "--json")

    (found,) = json.loads(done.stdout)
    assert (found["target"], found["shown_state"], found["cause"]["kind"]) == ("b", "open", "soft")


def test_a_service_that_answers_is_asked_with_the_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("0123456789abcdef\nanother-long-token\n", encoding="utf-8")
    with a_service() as service:
        world = a_world(tmp_path, port=service.port, extra="token_file: tokens\n")
        path = "/v1/breakers/chat/127.0.0.1%3A8000/override"
        service.answers[path] = (200, breaker_answer(shown_state="forced_open", effective_ratio=0))

        done = world.run(
            "breaker", "open", "chat/127.0.0.1:8000", "--reason", "x", "--actor", "kim"
        )

    assert done.exit_code == 0
    assert done.stdout == "chat/127.0.0.1:8000: forced_open, admits 0\n"
    body = {"forced": "forced_open", "reason": "x", "seconds": 900.0, "actor": "kim"}
    assert service.changes == [("POST", path, body, "Bearer 0123456789abcdef")]
    assert {token for method, _, _, token in service.asked if method == "GET"} == {""}
    assert left(world) == []


def test_a_refusal_of_the_service_ends_with_its_reason(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/breakers/chat/override"] = (403, {"detail": "no tokens are set"})

        done = world.run("breaker", "release", "chat", "--reason", "x")

    assert done.exit_code == 2
    assert "403: no tokens are set" in done.stderr
    assert left(world) == []


@pytest.mark.parametrize("answer", [(503, {"detail": "busy"}), (200, b"<html>")])
def test_a_service_that_cannot_do_it_leaves_it_to_the_database(
    tmp_path: Path, answer: tuple[int, object]
) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/breakers/chat/override"] = answer

        done = world.run("breaker", "close", "chat", "--reason", "x")

    assert done.exit_code == 0
    assert len(left(world)) == 1


def test_control_characters_in_a_reason_do_not_reach_the_terminal(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        cause = {"code": "x", "kind": "soft", "reason": "a\x1b[31mred", "signals": {}}
        answer = breaker_answer(shown_state="open", effective_ratio=0, cause=cause)
        service.answers["/v1/breakers"] = (200, [answer])

        done = world.run("breaker", "list")

    assert "\x1b" not in done.stdout
    assert "red" in done.stdout


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("", encoding="utf-8")
    world = a_world(tmp_path)

    done = world.run(
        "breaker", "release", "chat", "--reason", "x", "--token-file", str(tmp_path / "empty")
    )

    assert done.exit_code == 2
    assert "it is empty" in done.stderr


def test_release_goes_on_when_the_service_refuses_one_tier(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port, extra="mode: enforce\n")
        refusal = (422, {"detail": "the journal says no"})
        for path in ("chat", "chat/127.0.0.1%3A8000", "chat/b", "code", "code/c"):
            service.answers[f"/v1/breakers/{path}/override"] = (200, breaker_answer())
        service.answers["/v1/breakers/chat/override"] = refusal

        done = world.run("release", "--all")

    assert done.exit_code == 2
    assert len(service.changes) == 5
    assert "422: the journal says no" in done.stderr
    assert "not everything was released" in done.stderr


def test_release_asks_nothing_of_tiers_that_the_service_only_observes(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port, extra="mode: enforce\n")
        service.answers["/v1/state"] = (200, state_answer(mode="observe"))

        done = world.run("release", "--all")

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "chat: observe, nothing is withheld",
        "code: observe, nothing is withheld",
    ]
    assert done.stderr == ""
    assert service.changes == []


def test_an_override_in_force_is_listed_with_its_own_times_and_person(tmp_path: Path) -> None:
    override = {
        "forced": "forced_closed",
        "actor": "kim",
        "reason": "trying it",
        "since": "2026-11-29T15:00:00Z",
        "expires_at": "2026-11-29T15:15:00Z",
    }
    answer = breaker_answer(
        state="half_open",
        shown_state="forced_closed",
        admit_ratio=0.05,
        changed_at="2026-11-29T12:00:00Z",
        override=override,
    )
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/breakers"] = (200, [answer])

        done = world.run("breaker", "list")

    assert done.stdout == (
        "breaker: name=chat/b  state=forced_closed  admits=1  since=2026-11-29 15:00:00Z  "
        "until=2026-11-29 15:15:00Z  by=kim  why=trying it  by_itself=half_open, admits 0.05\n"
    )


def test_a_release_of_what_is_not_overridden_says_so_and_asks_for_nothing(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/breakers"] = (200, [breaker_answer(target="")])

        done = world.run("breaker", "release", "chat", "--reason", "x")

    assert done.exit_code == 0
    assert done.stdout == "chat: there was no override, and it admits everything\n"
    assert service.changes == []


def test_a_release_without_an_override_still_ends_a_latch(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        latched = breaker_answer(state="open", shown_state="open", admit_ratio=0.0)
        service.answers["/v1/breakers"] = (200, [latched])
        answer = breaker_answer(shown_state="half_open", effective_ratio=0.05)
        service.answers["/v1/breakers/chat/b/override"] = (200, answer)

        done = world.run("breaker", "release", "chat/b", "--reason", "restarted")

    assert done.exit_code == 0
    assert done.stdout == "chat/b: there was no override; half_open, admits 0.05\n"
    assert len(service.changes) == 1


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        (["breaker", "open", "chat", "--reason", "x"], state_answer("shop")),
        (["breaker", "release", "chat", "--reason", "x"], state_answer("chat")),
        (["release", "--all"], state_answer(controller="demo")),
        (["baseline", "promote", "bl_1", "--reason", "x"], state_answer("shop")),
    ],
)
def test_nothing_is_changed_at_a_service_of_another_configuration(
    tmp_path: Path, arguments: list[str], state: object
) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/state"] = (200, state)
        service.answers["/v1/breakers"] = (200, [breaker_answer(target="")])

        done = world.run(*arguments)

    assert done.exit_code == 2
    assert "the configuration names controller 'fusewire' with tiers chat, code" in done.stderr
    assert "nothing was changed" in done.stderr
    assert service.changes == []
    assert left(world) == []


def test_reading_from_a_service_of_another_configuration_warns(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/state"] = (200, state_answer(controller="demo"))
        service.answers["/v1/breakers"] = (200, [breaker_answer()])

        done = world.run("breaker", "list")

    assert done.exit_code == 0
    assert "name=chat/b" in done.stdout
    assert "warning: " in done.stderr
    assert "is controller 'demo'" in done.stderr


def test_what_is_wrong_with_a_request_is_told_as_the_service_says_it(tmp_path: Path) -> None:
    trouble = {"type": "too_long", "loc": ["body", "actor"], "msg": "too long", "input": "kim"}
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/breakers/chat/override"] = (422, {"detail": [trouble]})

        done = world.run("breaker", "open", "chat", "--reason", "x")

    assert done.exit_code == 2
    assert "422: actor: too long" in done.stderr
