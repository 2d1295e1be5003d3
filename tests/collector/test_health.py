"""One broken part does not stop the others, and is logged when it breaks and when it heals."""

from __future__ import annotations

import asyncio
import logging

import pytest

from collector.health import Condition, Health


def test_a_failure_is_counted_and_does_not_leave(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()

    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with health.watch("source:a"):
                msg = "no route"
                raise OSError(msg)
        with health.watch("source:a"):
            pass

    assert health.conditions["source:a"] == Condition(failures=3, problem="")
    assert [record.message for record in caplog.records] == ["part broke", "part healed"]


def test_a_change_is_reported_with_the_problem() -> None:
    seen: list[tuple[str, Condition]] = []
    health = Health(on_change=lambda part, condition: seen.append((part, condition)))

    with health.watch("detector:ks"):
        msg = "bad grid"
        raise ValueError(msg)

    assert seen == [("detector:ks", Condition(1, "ValueError: bad grid"))]


def test_cancellation_is_not_swallowed() -> None:
    health = Health()

    with pytest.raises(asyncio.CancelledError), health.watch("source:a"):
        raise asyncio.CancelledError
