"""The whole demo with the real service: what `make demo` promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collector.demo import settings
from collector.demo.serving import taken_ports

COMMAND = "from collector.cli import main; main()"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("feed", [[], ["--pull"]], ids=["webhook", "pull"])
def test_the_incident_is_told_within_two_minutes_and_seen_whole(
    tmp_path: Path, feed: list[str]
) -> None:
    folder = tmp_path / "run"

    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "demo", "--json", "--folder", str(folder), *feed],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["passed"]
    assert summary["seconds"] < 120
    assert summary["opened"] < summary["closed"]
    assert summary["shed"] > 0
    assert summary["failed"] == 0
    assert taken_ports(*settings.ports()) == []
