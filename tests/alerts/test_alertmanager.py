"""The push to Alertmanager: its body, its members, and the real one of Debian."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from alerts.alertmanager import Pusher, PushSettings, alert_name, describe, render_alerts
from alerts.policy import AlertState, Change, Finding
from detectors.records import Level
from tests.builders import START
from tests.parts import need_program
from tests.programs import free_port, running

pytestmark = pytest.mark.anyio
FINDING = Finding("limit", "target:a", "kv_cache_usage_ratio", Level.CRITICAL, "0.97, trip at 0.95")
ALERT = AlertState("chat", "kv_cache_saturated", Level.CRITICAL, START, (FINDING,))
MEMBERS = ("http://one:9093", "http://two:9093/")
SETTINGS = PushSettings(MEMBERS, controller="fusewire", link="http://127.0.0.1:9731/")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def cleared(alert: AlertState, seconds: float) -> Change:
    return Change(alert.tier, alert.cause, alert, None, after(seconds))


@dataclass
class Members:
    """Answers for members that are not there, and what they were sent."""

    answer: Callable[[httpx2.Request], httpx2.Response]
    sent: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append((str(request.url), json.loads(request.content)))
        return self.answer(request)

    def pusher(self, settings: PushSettings = SETTINGS) -> Pusher:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self.handle))
        return Pusher(client, settings, lambda member, how: self.outcomes.append((member, how)))


def fine(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200)


async def test_every_member_gets_every_alert_with_a_fixed_start_and_an_end_ahead() -> None:
    members = Members(fine)
    pusher = members.pusher()

    first = await pusher.push([ALERT], after(10))
    second = await pusher.push([ALERT], after(40))

    assert first.accepted
    assert second.accepted
    assert [url for url, _ in members.sent] == [
        "http://one:9093/api/v2/alerts",
        "http://two:9093/api/v2/alerts",
    ] * 2
    (row,) = members.sent[-1][1]
    assert row["labels"] == {
        "alertname": "LLMKVCacheSaturated",
        "severity": "critical",
        "tier": "chat",
        "cause": "kv_cache_saturated",
        "controller": "fusewire",
    }
    assert datetime.fromisoformat(row["startsAt"]) == START
    assert datetime.fromisoformat(row["endsAt"]) == after(40 + 240)
    assert row["generatorURL"] == "http://127.0.0.1:9731/"
    assert row["annotations"]["runbook_url"] == "docs/runbooks/LLMKVCacheSaturated.md"
    assert "0.97, trip at 0.95" in row["annotations"]["description"]


@pytest.mark.parametrize(("resend", "ahead"), [(1.0, 240), (60.0, 240), (61.0, 244), (300.0, 1200)])
async def test_what_fires_outlasts_the_pushes_that_are_lost_whatever_their_period(
    resend: float, ahead: float
) -> None:
    members = Members(fine)

    await members.pusher(replace(SETTINGS, resend_seconds=resend)).push([ALERT], after(0))

    (row,) = members.sent[-1][1]
    assert datetime.fromisoformat(row["endsAt"]) == after(ahead)


async def test_what_is_resolved_is_sent_for_a_quarter_of_an_hour_and_then_no_more() -> None:
    members = Members(fine)
    pusher = members.pusher()
    pusher.note([cleared(ALERT, 100)])

    await pusher.push([], after(110))
    await pusher.push([], after(999))
    nothing = await pusher.push([], after(1_001))

    assert nothing.accepted
    assert len(members.sent) == 4
    assert datetime.fromisoformat(members.sent[-1][1][0]["endsAt"]) == after(100)


async def test_an_alert_that_changes_its_severity_ends_under_the_old_one() -> None:
    members = Members(fine)
    pusher = members.pusher()
    warning = replace(ALERT, level=Level.WARNING)
    worse = replace(ALERT, since=after(50))

    pusher.note([Change("chat", ALERT.cause, warning, worse, after(50))])
    await pusher.push([worse], after(55))

    ends = {row["labels"]["severity"]: row["endsAt"] for row in members.sent[0][1]}
    assert datetime.fromisoformat(ends["warning"]) == after(50)
    assert datetime.fromisoformat(ends["critical"]) == after(55 + 240)


async def test_an_alert_that_fires_again_is_not_sent_as_resolved_beside_it() -> None:
    members = Members(fine)
    pusher = members.pusher()
    again = replace(ALERT, since=after(20))

    pusher.note([cleared(ALERT, 10)])
    pusher.note([Change("chat", ALERT.cause, None, again, after(20))])
    await pusher.push([again], after(21))

    assert len(members.sent[0][1]) == 1


async def test_one_member_that_accepts_is_enough_and_the_other_is_counted() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "one":
            message = "connection refused"
            raise httpx2.ConnectError(message)
        return httpx2.Response(200)

    members = Members(answer)

    pushed = await members.pusher().push([ALERT], START)

    assert pushed.accepted
    assert pushed.problems[MEMBERS[0]] == "ConnectError: connection refused"
    assert members.outcomes == [(MEMBERS[0], "failed"), (MEMBERS[1], "ok")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"code":400,"message":"bad alert"}', "answered 400: bad alert"),
        (b'"start time must be before end time"', "answered 400: start time must be before"),
        (b"<html>busy</html>", "answered 400: <html>busy</html>"),
        (b"\xff" * 1_000, "answered 400: "),
        (b"", "answered 400: "),
        (b"[1]", "answered 400: [1]"),
    ],
)
async def test_a_refusal_is_told_in_its_own_words_whatever_its_shape(
    body: bytes, words: str
) -> None:
    members = Members(lambda request: httpx2.Response(400, content=body))

    pushed = await members.pusher().push([ALERT], START)

    assert not pushed.accepted
    assert pushed.problems[MEMBERS[0]].startswith(words)
    assert len(pushed.problems[MEMBERS[0]]) < 250


async def test_a_member_that_hangs_costs_no_more_than_its_timeout() -> None:
    async def hang(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(30)
        return httpx2.Response(200)

    settings = replace(SETTINGS, timeout_seconds=0.05)
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(hang))

    pushed = await Pusher(client, settings, lambda member, how: None).push([ALERT], START)

    assert set(pushed.problems.values()) == {"no answer within 0.05 s"}


async def test_a_redirect_is_a_failure() -> None:
    elsewhere = {"location": "http://elsewhere/"}
    members = Members(lambda request: httpx2.Response(302, headers=elsewhere))

    pushed = await members.pusher().push([ALERT], START)

    assert not pushed.accepted


async def test_resolved_alerts_are_bounded() -> None:
    members = Members(fine)
    pusher = members.pusher()
    for number in range(1_200):
        pusher.note([cleared(replace(ALERT, tier=f"t{number}"), 0)])

    await pusher.push([], after(1))

    assert len(members.sent[0][1]) == 1_000
    assert members.sent[0][1][-1]["labels"]["tier"] == "t1199"


def test_a_description_lists_the_worst_and_counts_the_rest() -> None:
    findings = tuple(replace(FINDING, scope=f"target:t{number}") for number in range(8))

    words = describe(replace(ALERT, findings=findings, more=4))

    assert words.startswith("target:t0 kv_cache_usage_ratio: critical, 0.97, trip at 0.95; ")
    assert words.endswith("; and 7 more")
    assert "target:t5" not in words


def test_a_cause_without_a_rule_has_a_name_and_no_runbook() -> None:
    alert = replace(ALERT, cause="slots_saturated")

    (row,) = json.loads(render_alerts([alert], [], START, SETTINGS))

    assert alert_name("slots_saturated") == "FusewireSlotsSaturated"
    assert "runbook_url" not in row["annotations"]


@contextmanager
def a_receiver() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Run a webhook receiver; yield its port and the bodies it has received."""
    bodies: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port, bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def an_alertmanager(folder: Path, webhook_port: int) -> Iterator[str]:
    """Run Debian's Alertmanager; yield its base URL."""
    program = need_program(
        "prometheus-alertmanager", install="apt-get install prometheus-alertmanager"
    )
    port = free_port()
    config = folder / "am.yml"
    config.write_text(
        "route: {receiver: hook, group_by: [alertname, tier], group_wait: 0s, group_interval: 1s}\n"
        "receivers: [{name: hook, webhook_configs: [{send_resolved: true, url: "
        f"'http://127.0.0.1:{webhook_port}/'}}]}}]\n"
    )
    command = [
        program,
        f"--config.file={config}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, ready=f"{url}/-/ready", log=folder / "am.log"):
        yield url


async def until(condition: Callable[[], bool], within_seconds: float = 15.0) -> None:
    deadline = time.monotonic() + within_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_real_alertmanager_sees_it_fire_stay_and_resolve(tmp_path: Path) -> None:
    def now() -> datetime:
        return datetime.now(UTC)  # noqa: TID251  # a real Alertmanager has a real clock

    with a_receiver() as (port, bodies), an_alertmanager(tmp_path, port) as url:
        dead = f"http://127.0.0.1:{free_port()}"
        settings = replace(SETTINGS, members=(url, dead))
        outcomes: list[tuple[str, str]] = []
        async with httpx2.AsyncClient() as client:
            pusher = Pusher(client, settings, lambda member, how: outcomes.append((member, how)))
            alert = replace(ALERT, since=now() - timedelta(seconds=30))

            assert (await pusher.push([alert], now())).accepted
            await until(lambda: len(bodies) == 1)
            (first,) = (await client.get(f"{url}/api/v2/alerts")).json()
            assert (await pusher.push([alert], now() + timedelta(seconds=30))).accepted
            (second,) = (await client.get(f"{url}/api/v2/alerts")).json()
            pusher.note([Change("chat", alert.cause, alert, None, now())])
            assert (await pusher.push([], now())).accepted
            await until(lambda: bodies[-1]["status"] == "resolved")
            left = (await client.get(f"{url}/api/v2/alerts")).json()

    assert first["labels"]["alertname"] == "LLMKVCacheSaturated"
    assert first["fingerprint"] == second["fingerprint"]
    assert first["startsAt"] == second["startsAt"]
    assert first["endsAt"] < second["endsAt"]
    assert left == []
    assert [body["status"] for body in bodies] == ["firing", "resolved"]
    assert bodies[0]["alerts"][0]["annotations"]["summary"] == "Tier chat: kv cache saturated."
    assert outcomes.count((url, "ok")) == 3
    assert outcomes.count((dead, "failed")) == 3


@pytest.mark.slow
async def test_the_real_alertmanager_refuses_nonsense_in_words(tmp_path: Path) -> None:
    with a_receiver() as (port, _), an_alertmanager(tmp_path, port) as url:
        async with httpx2.AsyncClient() as client:
            settings = replace(SETTINGS, members=(url,), link="::not a url")

            pushed = await Pusher(client, settings, lambda member, how: None).push([ALERT], START)

    assert not pushed.accepted
    assert pushed.problems[url].startswith("answered 4")
