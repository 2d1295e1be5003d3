"""The receiver: newest wins, its own lease, 503 as OpenAI says it, signatures."""

from __future__ import annotations

import pytest

from tests.alerts.embed.door import NOW, OLD_SECRET, SECRET, Door, message, wire


@pytest.mark.anyio
async def test_a_closed_tier_answers_503_as_openai_does_with_a_spread_retry_after() -> None:
    door = Door()
    await door.told(wire(message(1)))

    answer = await door.asked()

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "20"
    assert answer.json()["error"]["code"] == "fusewire_breaker_open"
    assert answer.json()["error"]["type"] == "overloaded_error"
    assert door.receiver.ledger.counts["denied"] == 1


@pytest.mark.anyio
async def test_an_applied_message_is_confirmed_with_its_numbers() -> None:
    door = Door()

    answer = await door.told(wire(message(7, 0.25, epoch=3)))

    assert answer.status_code == 200
    assert answer.json() == {"applied": True, "epoch": 3, "seq": 7, "admit_ratio": 0.25}
    assert door.receiver.admit_ratio() == 0.25


@pytest.mark.anyio
@pytest.mark.parametrize(("lot", "status"), [(0.2, 200), (0.3, 503)])
async def test_the_admit_ratio_is_the_share_that_is_served(lot: float, status: int) -> None:
    door = Door(lot=lot)
    await door.told(wire(message(1, 0.25)))

    assert (await door.asked()).status_code == status


@pytest.mark.anyio
async def test_without_renewal_everything_is_served_once_the_lease_has_ended() -> None:
    door = Door()
    await door.told(wire(message(1, 0.0, lease_seconds=60)))
    door.clock.at += 59.9
    before = await door.asked()

    door.clock.at += 0.2
    after = await door.asked()

    assert (before.status_code, after.status_code) == (503, 200)
    assert door.receiver.ledger.counts["lease_lapsed"] == 1


@pytest.mark.anyio
async def test_a_repeated_message_does_not_renew_the_lease() -> None:
    door = Door()
    body = wire(message(1))
    await door.told(body)
    door.clock.at += 50

    repeated = await door.told(body)
    door.clock.at += 11

    assert repeated.json()["applied"] is True
    assert (await door.asked()).status_code == 200


@pytest.mark.anyio
async def test_an_older_message_is_refused_with_the_newer_numbers() -> None:
    door = Door()
    await door.told(wire(message(5, 1.0, epoch=2)))

    answer = await door.told(wire(message(99, 0.0, epoch=1)))

    assert answer.status_code == 409
    assert answer.json()["current"] == {"epoch": 2, "seq": 5, "controller": "fw"}
    assert door.receiver.admit_ratio() == 1.0


@pytest.mark.anyio
async def test_two_controllers_are_both_obeyed_the_stricter_one_decides() -> None:
    door = Door()
    await door.told(wire(message(1, 0.5)))
    await door.told(wire(message(1, 0.2, controller="other")))

    assert door.receiver.admit_ratio() == 0.2


@pytest.mark.anyio
async def test_ratios_of_targets_serve_the_apps_own_balancing() -> None:
    door = Door()
    await door.told(wire(message(1, 0.0, target="a")))
    await door.told(wire(message(1, 1.0, target="b")))

    assert door.receiver.ratios() == {"a": 0.0, "b": 1.0}
    assert (await door.asked()).status_code == 200  # a target's breaker does not close the tier


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "with_secret", "minutes", "status"),
    [
        (wire(message(1)), OLD_SECRET, 0, 401),
        (wire(message(1)), SECRET, 6, 401),
        (b"not json", SECRET, 0, 400),
        (b'{"data": {"tier": "chat"}}', SECRET, 0, 400),
        (b"[" * 10_000, SECRET, 0, 400),
        (wire(message(1, tier="other")), SECRET, 0, 202),
        (wire(message(1, dry_run=True)), SECRET, 0, 202),
        (b"x" * (64 * 1024 + 1), SECRET, 0, 413),
    ],
    ids=["secret", "time", "text", "empty", "depth", "tier", "dry run", "size"],
)
async def test_what_is_not_for_it_changes_nothing(
    body: bytes, with_secret: str, minutes: int, status: int
) -> None:
    door = Door()

    at = NOW.replace(minute=NOW.minute + minutes)
    answer = await door.told(body, with_secret=with_secret, at=at)

    assert answer.status_code == status
    assert door.receiver.admit_ratio() == 1.0


@pytest.mark.anyio
async def test_a_rotated_secret_is_taken_beside_the_new_one() -> None:
    door = Door(settings={"previous_secret": OLD_SECRET})

    answer = await door.told(wire(message(1)), with_secret=OLD_SECRET)

    assert answer.status_code == 200


@pytest.mark.anyio
async def test_the_state_can_be_read_back() -> None:
    door = Door()
    await door.told(wire(message(4, 0.5)))
    await door.told(wire(message(2, 0.0, target="a")))

    state = (await door.client.get("/hooks/fusewire")).json()

    assert (state["tier"], state["admit_ratio"]) == ("chat", [0.5, 1, 4])
    assert state["targets"] == {"a": [0.0, 1, 2]}


@pytest.mark.anyio
async def test_only_guarded_paths_are_refused() -> None:
    door = Door(settings={"prefixes": ("/v1/",)})
    await door.told(wire(message(1)))

    assert (await door.asked("/health")).status_code == 200
    assert (await door.asked("/v1/completions")).status_code == 503


@pytest.mark.anyio
@pytest.mark.parametrize("ratio", [float("nan"), None, "0", True, -5, 10**400])
async def test_a_ratio_that_makes_no_sense_never_goes_outside_zero_to_one(ratio: object) -> None:
    door = Door()

    await door.told(wire(message(1, admit_ratio=ratio)))

    assert door.receiver.admit_ratio() == (0.0 if ratio == -5 else 1.0)
