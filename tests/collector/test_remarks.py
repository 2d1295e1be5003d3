"""Findings are logged when they come and when they go, changes when they are noticed."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from collector.remarks import LogRemarks
from detectors.records import Reading
from detectors.remarks import Finding, Noticed
from tests.builders import a_reading

pytestmark = pytest.mark.anyio

LOST = Finding("gpu_lost", "gpu_memory_used_bytes", "GPU 1 is lost; restart the node")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


async def taken(remarks: LogRemarks, *readings: Reading) -> None:
    for reading in readings:
        await remarks.take((), reading)


async def test_a_finding_is_logged_when_it_comes_and_when_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    found = replace(a_reading(), findings=(LOST,))

    await taken(LogRemarks(), found, found, a_reading(), a_reading(), found)

    assert said(caplog) == ["finding", "finding gone", "finding"]
    assert caplog.records[0].__dict__["problem"] == LOST.text


async def test_a_failed_scrape_takes_nothing_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = replace(a_reading(), findings=(LOST,))

    await taken(LogRemarks(), found, a_reading(problem="timeout"), found)

    assert said(caplog) == ["finding", "reading failed", "reading works again"]


async def test_a_target_that_cannot_be_read_is_logged_when_it_breaks_and_when_it_heals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    failed = a_reading(problem="cannot connect: refused")

    await taken(LogRemarks(), a_reading(), failed, failed, a_reading(), a_reading())

    assert said(caplog) == ["reading failed", "reading works again"]
    assert caplog.records[0].__dict__["problem"] == "cannot connect: refused"
    assert caplog.records[1].__dict__["failures"] == 2


async def test_a_change_is_logged_with_what_was_before(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    await taken(LogRemarks(), replace(a_reading(), noticed=(Noticed("version", "0.9", "0.10"),)))

    assert said(caplog) == ["change noticed"]
    assert caplog.records[0].__dict__["after"] == "0.10"


async def test_what_is_seen_for_the_first_time_is_no_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    seen = Noticed("version", "", "0.10", first=True)

    await taken(LogRemarks(), replace(a_reading(), noticed=(seen,)))

    assert said(caplog) == []


async def test_a_target_that_comes_back_after_it_was_gone_is_told_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    remarks, found = LogRemarks(), replace(a_reading(), findings=(LOST,))

    await taken(remarks, found)
    remarks.forget("chat", "a")
    await taken(remarks, found)

    assert said(caplog) == ["finding", "finding"]
