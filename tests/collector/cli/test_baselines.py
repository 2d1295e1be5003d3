"""`baseline create|list|show|promote`."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from collector.store import baselines, ticks
from detectors.records import TIER_SCOPE
from tests.builders import a_tick
from tests.collector.cli.world import World, a_service, a_world, writing

pytestmark = pytest.mark.slow

RECORDING = Path(str(files("collector.demo"))) / "recordings" / "a-baseline.jsonl.gz"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(tmp_path)


@pytest.fixture
def some_lines(tmp_path: Path) -> Path:
    """The first 60 recorded generations, plain."""
    path = tmp_path / "some.jsonl"
    with gzip.open(RECORDING, "rb") as packed:
        path.write_bytes(b"".join(packed.readline() for _ in range(60)))
    return path


def of_tier(world: World) -> dict[str, str]:
    """Return what is listed of the tier's own baseline."""
    (found,) = [
        one
        for one in json.loads(world.run("baseline", "list", "--json").stdout)
        if one["scope"] == "tier"
    ]
    return {name: str(value) for name, value in found.items()}


def test_a_file_of_generations_becomes_a_candidate(world: World, some_lines: Path) -> None:
    done = world.run(
        "baseline", "create", str(some_lines), "--tier", "chat", "--requests", "50", "--json"
    )

    assert done.exit_code == 0, done.output
    made = {one["scope"]: one for one in json.loads(done.stdout)}
    assert made["tier"]["requests"] == 60
    assert made["tier"]["stage"] == "candidate"
    assert made["tier"]["provenance"] == "file some.jsonl"
    with writing(world) as session:
        kept = baselines.get(session, made["tier"]["id"])
    assert kept.scope == TIER_SCOPE
    assert kept.signals["prompt_chars"].requests == 60


def test_too_few_generations_are_exit_code_3(world: World, some_lines: Path) -> None:
    done = world.run("baseline", "create", str(some_lines), "--tier", "chat")

    assert done.exit_code == 3
    assert "60 of 200 requests" in done.stderr
    assert json.loads(world.run("baseline", "list", "--json").stdout) == []


def test_lines_that_cannot_be_read_are_counted_and_the_others_used(
    world: World, some_lines: Path
) -> None:
    with some_lines.open("ab") as file:
        file.write(b'{"request": 1}\nnonsense\n')

    done = world.run("baseline", "create", str(some_lines), "--tier", "chat", "--requests", "50")

    assert done.exit_code == 0
    assert "60 generations; refused:" in done.stderr


def test_a_broken_gzip_file_is_refused(world: World, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl.gz"
    path.write_bytes(RECORDING.read_bytes()[:5000])

    done = world.run("baseline", "create", str(path), "--tier", "chat")

    assert done.exit_code == 2
    assert "cannot be read" in done.stderr


def test_a_file_that_is_not_there_is_refused(world: World, tmp_path: Path) -> None:
    done = world.run("baseline", "create", str(tmp_path / "nowhere"), "--tier", "chat")

    assert done.exit_code == 2
    assert "cannot be read" in done.stderr


def test_kept_ticks_become_a_candidate(world: World) -> None:
    counted = {"prompt_tokens": np.arange(100.0)}
    with writing(world) as session:
        ticks.append(session, [a_tick(counted, number=number) for number in range(3)])

    done = world.run("baseline", "create", "--from-ticks", "--tier", "chat")

    assert done.exit_code == 0, done.output
    assert "requests=300" in done.stdout
    assert "from=ticks 2026-11-29 12:00Z to 2026-11-29 12:00Z" in done.stdout


def test_file_and_ticks_together_are_refused(world: World, some_lines: Path) -> None:
    done = world.run("baseline", "create", str(some_lines), "--from-ticks", "--tier", "chat")

    assert done.exit_code == 2


def test_a_baseline_is_shown_signal_by_signal(world: World, some_lines: Path) -> None:
    world.run("baseline", "create", str(some_lines), "--tier", "chat", "--requests", "60")

    plain = world.run("baseline", "show", of_tier(world)["id"])
    shown = json.loads(world.run("baseline", "show", of_tier(world)["id"], "--json").stdout)

    assert "name=prompt_chars" in plain.stdout
    signals = {one["signal"]: one for one in shown["signals"]}
    assert signals["prompt_chars"]["requests"] == 60
    assert signals["prompt_chars"]["median"] <= signals["prompt_chars"]["p99"]


def test_an_unknown_baseline_is_refused(world: World) -> None:
    done = world.run("baseline", "show", "bl_0")

    assert done.exit_code == 2
    assert "'bl_0' is not in the store" in done.stderr


def test_a_promotion_without_a_service_is_done_in_the_database(
    world: World, some_lines: Path
) -> None:
    world.run("baseline", "create", str(some_lines), "--tier", "chat", "--requests", "60")
    identity = of_tier(world)["id"]

    done = world.run("baseline", "promote", identity, "--reason", "checked", "--actor", "kim")

    assert done.exit_code == 0
    assert f"{identity}: active for chat, tier in the database" in done.stdout
    found = of_tier(world)
    assert (found["stage"], found["author"], found["reason"]) == ("active", "kim", "checked")


def test_a_promotion_goes_to_the_service_if_it_answers(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        answer = {
            "id": "bl_1",
            "tier": "chat",
            "scope": "tier",
            "variant": "",
            "stage": "active",
            "made_at": "2026-11-29T12:00:00Z",
            "requests": 300,
            "provenance": "x",
            "author": "kim",
            "reason": "checked",
            "signals": {"prompt_tokens": 300},
        }
        service.answers["/v1/baselines/bl_1/promote"] = (200, answer)

        done = world.run("baseline", "promote", "bl_1", "--reason", "checked", "--actor", "kim")

    assert done.stdout == "bl_1: active for chat, tier\n"
    assert service.changes[0][2] == {"author": "kim", "reason": "checked"}


def test_the_active_baseline_is_not_promoted_again(world: World, some_lines: Path) -> None:
    world.run("baseline", "create", str(some_lines), "--tier", "chat", "--requests", "60")
    identity = of_tier(world)["id"]
    world.run("baseline", "promote", identity, "--reason", "checked", "--actor", "kim")

    done = world.run("baseline", "promote", identity, "--reason", "again", "--actor", "lee")

    assert done.exit_code == 2
    assert "is active already, promoted by kim: checked" in done.stderr
    assert of_tier(world)["reason"] == "checked"


def test_a_list_names_who_promoted_and_nobody_for_a_retired_candidate(
    world: World, some_lines: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.jsonl"
    more.write_bytes(b"".join(some_lines.read_bytes().splitlines(keepends=True)[:50]))
    for path in (some_lines, more):
        world.run("baseline", "create", str(path), "--tier", "chat", "--requests", "50")
    listed = json.loads(world.run("baseline", "list", "--json").stdout)
    newest, oldest = (one["id"] for one in listed if one["scope"] == "tier")
    world.run("baseline", "promote", newest, "--reason", "checked", "--actor", "kim")

    lines = world.run("baseline", "list").stdout.splitlines()

    of_newest, of_oldest = (
        next(line for line in lines if f"id={identity} " in line) for identity in (newest, oldest)
    )
    assert "stage=active" in of_newest
    assert of_newest.endswith("Z kim: checked")
    assert "stage=retired" in of_oldest
    assert "promoted=" not in of_oldest


def test_a_list_asks_the_service_first(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port, store=False)
        span = "ticks 2026-11-29T19:13:11.737839+00:00 to 2026-11-29T19:40:02+00:00"
        answer = {
            "id": "bl_1",
            "tier": "chat",
            "scope": "tier",
            "variant": "0a1b2c3d",
            "stage": "candidate",
            "made_at": "2026-11-29T12:00:00Z",
            "promoted_at": None,
            "requests": 300,
            "provenance": span,
            "author": "",
            "reason": "",
        }
        service.answers["/v1/baselines"] = (200, [answer])

        done = world.run("baseline", "list", "--tier", "chat")

    assert done.exit_code == 0
    assert done.stderr == ""
    assert "id=bl_1  tier=chat  scope=tier  variant=0a1b2c3d  stage=candidate" in done.stdout
    assert "from=ticks 2026-11-29 19:13Z to 2026-11-29 19:40Z" in done.stdout
    assert ("GET", "/v1/baselines?tier=chat") in [one[:2] for one in service.asked]


def test_an_empty_list_says_what_to_do(world: World) -> None:
    done = world.run("baseline", "list")

    assert done.exit_code == 0
    assert done.stdout.startswith("no baselines yet: ")
    assert "fusewire baseline create FILE --tier TIER" in done.stdout
    assert "from the database" in done.stderr


def test_a_file_that_is_no_log_is_told_by_the_lines_that_were_refused(
    world: World, tmp_path: Path
) -> None:
    page = tmp_path / "page.txt"
    page.write_text("vllm:num_requests_running 0\n" * 28, encoding="utf-8")

    done = world.run("baseline", "create", str(page), "--tier", "chat")

    assert done.exit_code == 3
    assert "0 of 200 requests; refused: 28 lines malformed" in done.stderr


def test_a_segment_that_is_not_configured_is_refused(world: World, some_lines: Path) -> None:
    done = world.run("baseline", "create", str(some_lines), "--tier", "chat", "--segment", "paid")

    assert done.exit_code == 2
    assert "tier 'chat' has no segment 'paid'; its segments: free, other" in done.stderr


def test_the_help_says_where_a_promotion_is_kept_and_what_retires(world: World) -> None:
    text = " ".join(world.run("baseline", "promote", "--help").output.split())

    assert "it is kept with the baseline" in text
    assert "audit" not in text
    assert "Every other baseline of its stream" in text
