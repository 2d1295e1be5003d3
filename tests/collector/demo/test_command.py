"""`fusewire demo` from outside: what it shows, and what stops it before it starts."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from collector.demo import processes, settings
from collector.demo.chapters import CHAPTERS, Moment
from collector.demo.client import Counts
from collector.demo.command import DemoOptions, run
from collector.demo.facts import BaselineFact, BreakerFact, Facts, TierFact
from collector.demo.timeline import Timeline, status_words


@pytest.mark.anyio
async def test_a_port_that_is_taken_stops_the_demo_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((settings.HOST, 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(settings, "ports", lambda: (taken,))

        code = await run(DemoOptions(folder=tmp_path / "run"))

    assert code == 2
    written = capsys.readouterr().out
    assert f"ports [{taken}] of 127.0.0.1 are taken" in written
    assert "an earlier demo" in written
    assert not (tmp_path / "run").exists()


@pytest.mark.anyio
async def test_a_part_that_ends_at_once_fails_the_demo_and_shows_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ports", tuple)
    monkeypatch.setattr(processes, "SERVE", "import sys; sys.exit('config: not readable')")
    for name in ("SERVICE_PORT", "GATEWAY_PORT", "CONTROL_PORT"):
        monkeypatch.setattr(settings, name, a_free_port())
    monkeypatch.setattr(settings, "TARGET_PORTS", {"a": a_free_port()})

    code = await run(DemoOptions(json=True, folder=tmp_path))

    written = capsys.readouterr()
    assert code == 1
    assert "ended with status 1" in written.err
    assert "config: not readable" in written.err
    assert f"logs of the run: {tmp_path}" in written.err
    assert written.out == ""
    assert names_in(tmp_path) == {"demo.yaml", "service.log", "tier.log", "gateway.log"}


@pytest.mark.anyio
async def test_a_folder_with_an_earlier_run_in_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ports", tuple)
    (tmp_path / "fusewire.db").touch()

    code = await run(DemoOptions(folder=tmp_path))

    assert code == 2
    assert "is not empty" in capsys.readouterr().out
    assert names_in(tmp_path) == {"fusewire.db"}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def a_free_port() -> int:
    with socket.create_server((settings.HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_the_settings_of_the_demo_are_shown_by_name_and_value() -> None:
    shown = settings.shown_settings(settings.config_text())

    assert "mode enforce, scrape_interval 1s, tick 1s, requests 750" in shown
    assert "breach_n 2, breach_m 3, open_base_seconds 12" in shown


def test_the_configuration_names_the_ports_that_the_demo_listens_on() -> None:
    text = settings.config_text()

    for port in (settings.SERVICE_PORT, settings.GATEWAY_PORT, *settings.TARGET_PORTS.values()):
        assert f"127.0.0.1:{port}" in text
    assert settings.WEBHOOK_PATH in text
    assert f"${{{settings.SECRET_VARIABLE}}}" in text


def test_the_status_says_how_traffic_baselines_and_breakers_stand() -> None:
    facts = Facts(
        breakers=(
            BreakerFact("chat", "", "open", "open", 0.49),
            BreakerFact("chat", "b", "closed", "closed", 1.0),
            BreakerFact("chat", "c", "open", "open", 0.0),
        ),
        tiers=(
            TierFact(
                "chat",
                "enforce",
                [
                    BaselineFact("tier", "active", 500, 500),
                    BaselineFact("x", "collecting", 20, 500),
                ],
            ),
        ),
    )

    text = status_words(Moment(facts, Counts(answered=1234, shed=5)))

    assert text == (
        "1,234 answered · 5 shed · collecting x 20/500 · "
        "tier chat open, admits 0.49 · target c open, admits 0.00"
    )


def test_on_a_terminal_the_status_moves_and_the_lines_stay() -> None:
    written = io.StringIO()
    timeline = Timeline(Console(file=written, force_terminal=True, width=120, no_color=True))

    timeline.start()
    timeline.chapter(1, CHAPTERS[0], 0.0)
    timeline.status(1.0, Moment(Facts(), Counts(answered=7)))
    timeline.event(1.5, "open", "target c: KV cache full")
    timeline.stop()
    timeline.stop()

    assert "Normal traffic, and a baseline forming" in written.getvalue()
    assert "target c: KV cache full" in written.getvalue()
    assert "7 answered" in written.getvalue()
