"""Memory and restarts of real processes of this machine, and of a `/proc` written by hand."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.sources.host.process_files import process_memory
from collector.sources.host.process_memory import OFFERS, ProcessConfig
from collector.sources.protocols import Source
from detectors.records import Reading
from detectors.remarks import Noticed
from tests.collector.sources.looked import FIXTURES, assert_all_offered_are_told, looking
from tests.parts import need_path

pytestmark = pytest.mark.anyio
SLEEPER = "import sys, time; block = bytearray(int(sys.argv[1])); time.sleep(60)"
PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2], sys.argv[3]])\n"
    "time.sleep(60)\n"
)
LISTENER = (
    "import socket, time; s = socket.create_server(('127.0.0.1', 0));"
    "print(s.getsockname()[1], flush=True); time.sleep(60)"
)
MEGABYTE = 1_000_000


@pytest.fixture(autouse=True)
def linux() -> None:
    need_path("/proc/self/stat")


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


async def until_grown(source: Source, least: float) -> Reading:
    """Read until the process has touched its memory."""
    for _ in range(200):
        reading = await source.read()
        if reading.values.get("memory_anon_bytes", 0.0) >= least:
            return reading
        await asyncio.sleep(0.02)
    pytest.fail(f"anonymous memory did not reach {least}")


async def test_a_process_found_by_its_command_tells_what_it_holds() -> None:
    with running(SLEEPER, str(40 * MEGABYTE), "mark-alone"):
        config = ProcessConfig(command="mark-alone")
        async with looking(config) as source:
            reading = await until_grown(source, 40.0 * MEGABYTE)

    assert reading.values["memory_anon_bytes"] <= reading.values["memory_rss_bytes"]
    assert reading.values["memory_rss_bytes"] < 200 * MEGABYTE
    assert reading.values["restarts_total"] == 0.0
    assert reading.parts["restarts_total"] == {"process": 0.0}
    assert_all_offered_are_told(reading, OFFERS)


async def test_children_count_unless_they_are_left_out(tmp_path: Path) -> None:
    pid_file = tmp_path / "server.pid"
    with running(PARENT, SLEEPER, str(60 * MEGABYTE), "mark-child") as parent:
        pid_file.write_text(f"{parent.pid}\n")
        async with looking(ProcessConfig(pid_file=pid_file)) as source:
            await until_grown(source, 60.0 * MEGABYTE)
        async with looking(ProcessConfig(pid_file=pid_file, children=False)) as source:
            alone = await source.read()

    assert alone.values["memory_rss_bytes"] < 60 * MEGABYTE


async def test_a_process_is_found_by_the_port_it_listens_on() -> None:
    with running(LISTENER) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        async with looking(ProcessConfig(port=port)) as source:
            reading = await source.read()
    async with looking(ProcessConfig(port=port)) as source:
        gone = await source.read()

    assert reading.values["memory_rss_bytes"] > MEGABYTE
    assert gone.problem == f"no process listens on port {port}"


async def test_a_restart_is_noticed_once_and_counted(tmp_path: Path) -> None:
    pid_file = tmp_path / "server.pid"
    async with looking(ProcessConfig(pid_file=pid_file)) as source:
        with running(SLEEPER, "1") as first:
            pid_file.write_text(str(first.pid))
            before = await source.read()
        gone = await source.read()
        with running(SLEEPER, "1") as second:
            pid_file.write_text(str(second.pid))
            after = await source.read()
            again = await source.read()

    assert before.noticed == ()
    assert not gone.up
    assert "is gone" in gone.problem
    assert after.restarted
    assert after.noticed == (Noticed("restart", f"pid {first.pid}", f"pid {second.pid}"),)
    assert after.parts["restarts_total"] == {"process": 1.0}
    assert again.noticed == ()
    assert again.values["restarts_total"] == 1.0


async def test_a_command_that_nothing_has_is_a_problem_and_shows_no_command_line() -> None:
    async with looking(ProcessConfig(command="no-process-has-this-3f1c")) as source:
        reading = await source.read()

    assert not reading.up
    assert "`command`" in reading.problem
    assert "3f1c" not in reading.problem


def test_a_zombie_and_an_old_kernel_have_less_to_tell(tmp_path: Path) -> None:
    status = tmp_path / "proc/9/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tz\nState:\tZ (zombie)\n")

    memory = process_memory(tmp_path, 9)
    named = process_memory(FIXTURES / "host/v2", 4711)

    assert memory is not None
    assert (memory.rss, memory.anon, memory.swap) == (0.0, None, None)
    assert named is not None
    assert (named.rss, named.anon, named.swap) == (3145728 * 1024, 2621440 * 1024, 65536 * 1024)
    assert process_memory(tmp_path, 10) is None


@pytest.mark.parametrize(
    "settings",
    [{}, {"port": 1, "command": "x"}, {"port": 0}, {"command": "(a+)+"}, {"command": ".*"}],
)
def test_what_names_no_process_or_could_take_for_ever_is_refused(
    settings: dict[str, object],
) -> None:
    with pytest.raises(ValidationError):
        ProcessConfig.model_validate(settings)
