"""Optional push of the rolled-up alerts to every member of an Alertmanager.

Alertmanager forgets an alert whose `endsAt` has passed, so what fires is sent again well before,
and what is resolved is sent again for a while, in case a member was restarted or not reachable.
Each member gets every alert; they agree among themselves about who notifies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

import httpx2
import msgspec

from alerts.policy import AlertState, Change, Finding
from alerts.rules import ALERT_OF_CAUSE

LISTED_FINDINGS = 5  # in the description; the rest is counted
RESOLVED_KEPT = 1_000
LEAST_ENDS_AFTER_SECONDS = 240.0
RESENDS_AHEAD = 4
PROBLEM_CHARACTERS = 200

Outcome: TypeAlias = Callable[[str, str], None]
Identity: TypeAlias = tuple[str, str, str]  # tier, cause, severity: what Alertmanager tells apart


@dataclass(frozen=True, slots=True)
class PushSettings:
    """Where and how to push; `members` are base URLs (`http://alertmanager:9093`).

    `controller` is a label, so that two Fusewires do not resolve each other's alerts. `link` is
    the address of this service for people. `runbooks` as in `RuleSettings`. `resend_seconds` is
    how often the caller pushes: what fires is good for four of them, and for four minutes at least.
    """

    members: tuple[str, ...]
    controller: str
    link: str
    runbooks: str = "docs/runbooks"
    resend_seconds: float = 60.0
    resolved_for_seconds: float = 900.0
    timeout_seconds: float = 5.0

    @property
    def ends_after_seconds(self) -> float:
        """How far ahead an alert that fires ends: lost pushes must not resolve it."""
        return max(LEAST_ENDS_AFTER_SECONDS, RESENDS_AHEAD * self.resend_seconds)


@dataclass(frozen=True, slots=True)
class Pushed:
    """How one push went: problems by member, empty where it accepted."""

    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether at least one member has the alerts (true when there was nothing to send)."""
        return not self.problems or any(not problem for problem in self.problems.values())


class Pusher:
    """Sends what fires and what was resolved lately, each time the caller calls `push`.

    `on_outcome` is told (member, "ok" or "failed") for each attempt.
    """

    def __init__(
        self, client: httpx2.AsyncClient, settings: PushSettings, on_outcome: Outcome
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_outcome = on_outcome
        self._resolved: dict[Identity, tuple[AlertState, datetime]] = {}

    def note(self, changes: Sequence[Change]) -> None:
        """Remember what ended: a cleared alert, and the old severity of one that changed it."""
        for change in changes:
            if change.after is not None:
                self._resolved.pop(_identity(change.after), None)
            if change.before is not None:
                if len(self._resolved) >= RESOLVED_KEPT:
                    self._resolved.pop(next(iter(self._resolved)))
                self._resolved[_identity(change.before)] = (change.before, change.at)

    async def push(self, active: Sequence[AlertState], now: datetime) -> Pushed:
        """Send all alerts to all members at once, and wait for the slowest or its timeout."""
        oldest = now - timedelta(seconds=self._settings.resolved_for_seconds)
        self._resolved = {key: row for key, row in self._resolved.items() if row[1] >= oldest}
        body = render_alerts(active, list(self._resolved.values()), now, self._settings)
        if body == b"[]":
            return Pushed()
        members = self._settings.members
        problems = await asyncio.gather(*(self._post(member, body) for member in members))
        for member, problem in zip(members, problems, strict=True):
            self._on_outcome(member, "failed" if problem else "ok")
        return Pushed(dict(zip(members, problems, strict=True)))

    async def _post(self, member: str, body: bytes) -> str:
        """Return what went wrong, in words, or nothing."""
        url = member.rstrip("/") + "/api/v2/alerts"
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                response = await self._client.post(
                    url, content=body, headers={"content-type": "application/json"}
                )
        except TimeoutError:
            return f"no answer within {self._settings.timeout_seconds:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"{type(error).__name__}: {error}"
        if response.is_success:
            return ""
        return f"answered {response.status_code}: {_words(response.content)}"


def render_alerts(
    active: Sequence[AlertState],
    resolved: Sequence[tuple[AlertState, datetime]],
    now: datetime,
    settings: PushSettings,
) -> bytes:
    """Return the body of `POST /api/v2/alerts`: `resolved` are alerts with the moment they ended.

    `startsAt` never moves; `endsAt` of what fires lies `ends_after_seconds` ahead, so that
    lost pushes do not resolve it.
    """
    firing_until = now + timedelta(seconds=settings.ends_after_seconds)
    rows = [_alert(alert, firing_until, settings) for alert in active]
    rows.extend(_alert(alert, max(ended, alert.since), settings) for alert, ended in resolved)
    return msgspec.json.encode(rows)


def alert_name(cause: str) -> str:
    """Return the alert's name: that of the rule on the same cause, else made from its code."""
    made = "Fusewire" + "".join(word.capitalize() for word in cause.split("_"))
    return ALERT_OF_CAUSE.get(cause, made)


def _alert(alert: AlertState, ends_at: datetime, settings: PushSettings) -> dict[str, object]:
    name = alert_name(alert.cause)
    annotations = {
        "summary": f"Tier {alert.tier}: {alert.cause.replace('_', ' ')}.",
        "description": describe(alert),
    }
    if alert.cause in ALERT_OF_CAUSE:
        annotations["runbook_url"] = f"{settings.runbooks}/{name}.md"
    return {
        "labels": {
            "alertname": name,
            "severity": str(alert.level),
            "tier": alert.tier,
            "cause": alert.cause,
            "controller": settings.controller,
        },
        "annotations": annotations,
        "startsAt": alert.since.isoformat(),
        "endsAt": ends_at.isoformat(),
        "generatorURL": settings.link,
    }


def describe(alert: AlertState) -> str:
    """Say in words what an alert has found, the worst first."""
    shown = alert.findings[:LISTED_FINDINGS]
    rest = len(alert.findings) - len(shown) + alert.more
    words = "; ".join(map(_describe_finding, shown))
    return f"{words}; and {rest} more" if rest else words


def _describe_finding(finding: Finding) -> str:
    return (
        f"{finding.scope} {finding.signal}: {finding.level}, {finding.reason or 'no reason given'}"
    )


def _identity(alert: AlertState) -> Identity:
    return alert.tier, alert.cause, str(alert.level)


def _words(body: bytes) -> str:
    """Return the message of an error body: an object, a bare JSON string, or anything else."""
    try:
        parsed = msgspec.json.decode(body)
    except msgspec.DecodeError:
        parsed = body.decode(errors="replace")
    if isinstance(parsed, dict):
        parsed = parsed.get("message", parsed)
    return str(parsed)[:PROBLEM_CHARACTERS]
