"""Memory of control groups: version 1, version 2 and both, from trees written by hand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.sources.host.cgroup import OFFERS, CgroupConfig
from detectors.records import Absence
from tests.collector.sources.looked import (
    FIXTURES,
    Clock,
    assert_all_offered_are_told,
    codes,
    finding,
    looking,
)
from tests.parts import lacking, need_path

pytestmark = pytest.mark.anyio
HOST = FIXTURES / "host"
CONTAINER = "kubepods.slice/kubepods-pod5e1.slice/cri-containerd-0f3a9c1d2b4e.scope"


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A copy of the version 2 tree that a test may change."""
    return Path(shutil.copytree(HOST / "v2", tmp_path / "v2"))


@pytest.mark.parametrize(
    "settings",
    [
        {"pid": 4711},
        {"container_id": "0f3a9c1d2b4e"},
        {"path": f"/sys/fs/cgroup/{CONTAINER}"},
    ],
)
async def test_a_version_2_group_is_found_and_the_smallest_limit_above_counts(
    settings: dict[str, object],
) -> None:
    config = CgroupConfig.model_validate({**settings, "root": HOST / "v2"})

    async with looking(config) as source:
        reading = await source.read()

    assert reading.up
    assert reading.source == "cgroup"
    assert reading.values["memory_working_set_bytes"] == 3221225472 - 314572800
    assert reading.values["memory_limit_bytes"] == 4294967296  # the pod's, its own is twice that
    assert reading.values["memory_anon_bytes"] == 2684354560
    assert reading.values["memory_swap_bytes"] == 67108864
    assert reading.values["memory_ooms_total"] == 2
    assert reading.findings == ()


async def test_resident_memory_is_the_named_process_else_the_group() -> None:
    async with looking(CgroupConfig(pid=4711, root=HOST / "v2")) as source:
        of_process = await source.read()
    async with looking(CgroupConfig(container_id="0f3a9c1d2b4e", root=HOST / "v2")) as source:
        of_group = await source.read()

    assert of_process.values["memory_rss_bytes"] == 3145728 * 1024
    assert of_group.values["memory_rss_bytes"] == 2684354560 + 104857600


async def test_no_limit_is_absent_with_a_finding_and_never_infinite() -> None:
    async with looking(CgroupConfig(own=True, root=HOST / "v2")) as source:
        reading = await source.read()

    assert reading.absent["memory_limit_bytes"] is Absence.UNUSABLE
    assert codes(reading) == ["no_memory_limit"]
    assert reading.values["memory_working_set_bytes"] == 104857600 - 8388608
    assert_all_offered_are_told(reading, OFFERS)


async def test_a_version_1_container_sees_its_own_group_as_the_top_of_the_mount() -> None:
    async with looking(CgroupConfig(own=True, root=HOST / "v1")) as source:
        reading = await source.read()

    assert reading.values["memory_working_set_bytes"] == 1073741824 - 201326592
    assert reading.values["memory_limit_bytes"] == 2147483648  # hierarchical: a parent's
    assert reading.values["memory_anon_bytes"] == 786432000
    assert reading.values["memory_rss_bytes"] == 786432000 + 52428800
    assert reading.values["memory_swap_bytes"] == 12582912
    assert reading.values["memory_ooms_total"] == 1


async def test_a_process_in_a_group_that_cannot_be_seen_is_a_problem_that_says_what_to_do() -> None:
    async with looking(CgroupConfig(pid=88, root=HOST / "v1")) as source:
        reading = await source.read()

    assert not reading.up
    assert "/docker/ffffffffffff0000" in reading.problem
    assert "`path`" in reading.problem
    assert_all_offered_are_told(reading, OFFERS)


async def test_in_hybrid_mode_memory_is_read_where_its_controller_is() -> None:
    async with looking(CgroupConfig(own=True, root=HOST / "hybrid")) as source:
        reading = await source.read()

    assert reading.values["memory_working_set_bytes"] == 450_000_000
    assert reading.values["memory_limit_bytes"] == 1_500_000_000  # of the slice above
    assert reading.absent["memory_swap_bytes"] is Absence.NO_FAMILY
    assert reading.absent["memory_ooms_total"] is Absence.NO_FAMILY


async def test_a_kill_is_counted_and_told_for_an_hour(v2: Path) -> None:
    clock = Clock()
    events = v2 / "sys/fs/cgroup" / CONTAINER / "memory.events"
    async with looking(CgroupConfig(pid=4711, root=v2), clock) as source:
        first = await source.read()
        events.write_text("oom 4\noom_kill 3\n")
        clock.seconds += 10
        second = await source.read()
        clock.seconds += 4000
        third = await source.read()

    assert codes(first) == []  # what happened before is no news
    assert second.values["memory_ooms_total"] == 3
    assert "killed" in finding(second, "oom_killed").text
    assert codes(third) == []


async def test_kills_stay_counted_when_the_group_is_made_anew(v2: Path) -> None:
    events = v2 / "sys/fs/cgroup" / CONTAINER / "memory.events"
    async with looking(CgroupConfig(pid=4711, root=v2)) as source:
        await source.read()
        events.write_text("oom_kill 0\n")
        reading = await source.read()
        events.write_text("oom_kill 1\n")
        later = await source.read()

    assert reading.values["memory_ooms_total"] == 2
    assert later.values["memory_ooms_total"] == 3


async def test_a_container_that_is_gone_is_looked_for_again(v2: Path) -> None:
    folder = v2 / "sys/fs/cgroup" / CONTAINER
    async with looking(CgroupConfig(container_id="0f3a9c1d2b4e", root=v2)) as source:
        before = await source.read()
        moved = folder.rename(folder.parent / "docker-0f3a9c1d2b4e.scope")
        again = await source.read()
        shutil.rmtree(moved)
        gone = await source.read()

    assert before.up
    assert again.up
    assert "is it running" in gone.problem


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory.current", "not a number"), ("memory.current", ""), ("memory.current", "-5")],
)
async def test_files_that_are_not_as_the_kernel_writes_them_are_a_problem(
    v2: Path, name: str, text: str
) -> None:
    (v2 / "sys/fs/cgroup" / CONTAINER / name).write_text(text)

    async with looking(CgroupConfig(pid=4711, root=v2)) as source:
        reading = await source.read()

    assert name in reading.problem
    assert "expected a number of bytes" in reading.problem


async def test_a_folder_that_is_no_group_and_one_that_is_not_there_have_their_words(
    v2: Path,
) -> None:
    async with looking(CgroupConfig(path=Path("/sys/fs/cgroup"), root=v2)) as source:
        top = await source.read()
    async with looking(CgroupConfig(path=Path("/sys/fs/cgroup/no"), root=v2)) as source:
        nothing = await source.read()

    assert "topmost group" in top.problem
    assert "no such folder" in nothing.problem


async def test_a_pid_file_names_the_process_and_its_trouble_is_told(v2: Path) -> None:
    pid_file = v2 / "run/tgi.pid"
    pid_file.parent.mkdir()
    async with looking(CgroupConfig(pid_file=Path("/run/tgi.pid"), root=v2)) as source:
        missing = await source.read()
        pid_file.write_text("tgi\n")
        no_number = await source.read()
        pid_file.write_text("4711\n")
        good = await source.read()
        pid_file.write_text("4712\n")
        no_process = await source.read()

    assert "No such file" in missing.problem
    assert "expected the number of a process" in no_number.problem
    assert good.values["memory_limit_bytes"] == 4294967296
    assert "process 4712" in no_process.problem


@pytest.mark.parametrize("settings", [{}, {"pid": 1, "own": True}, {"container_id": "../etc"}])
def test_exactly_one_way_to_name_the_group_is_taken(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CgroupConfig.model_validate(settings)


async def test_this_machine_tells_the_memory_of_this_process() -> None:
    need_path("/proc/self/mountinfo")
    async with looking(CgroupConfig(pid=os.getpid())) as source:
        reading = await source.read()

    if reading.up:  # a machine may have no memory accounting for us
        assert 1e6 < reading.values["memory_rss_bytes"] < 1e12
        assert reading.values["memory_working_set_bytes"] > 0.0
    else:
        assert "cgroup" in reading.problem
    assert_all_offered_are_told(reading, OFFERS)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A real control group of this machine with a limit of 64 MiB."""
    mount = Path("/sys/fs/cgroup/memory")
    if not (mount / "memory.limit_in_bytes").exists():
        mount = Path("/sys/fs/cgroup")
    group = mount / f"fusewire-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if mount.name == "memory" else "memory.max"
    try:
        group.mkdir()
    except OSError as error:
        lacking(f"no control group can be made here ({error.strerror}); run this test as root")
    try:
        if not (group / limit).exists():
            lacking("control groups count no memory here; boot with cgroup_enable=memory")
        (group / limit).write_text(str(64 << 20))
        yield group
    finally:
        group.rmdir()


@pytest.fixture
def victim(small_group: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the group that holds 30 MiB, and on a word wants more than there is."""
    code = (
        "import os, sys\n"
        "open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "block = bytearray(30 << 20)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "block += bytearray(200 << 20)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(small_group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
async def test_a_real_kill_by_the_kernel_is_seen(
    small_group: Path, victim: subprocess.Popen[str]
) -> None:
    async with looking(CgroupConfig(pid=victim.pid)) as source:
        running = await source.read()
    async with looking(CgroupConfig(path=small_group)) as source:
        before = await source.read()
        victim.communicate("go\n", timeout=30)
        after = await source.read()

    assert victim.returncode == -signal.SIGKILL
    assert running.values["memory_limit_bytes"] == 64 << 20
    assert running.values["memory_working_set_bytes"] > 25e6
    assert running.values["memory_rss_bytes"] > 30e6
    assert before.values["memory_ooms_total"] == 0.0
    assert after.values["memory_ooms_total"] == 1.0
    assert codes(after) == ["oom_killed"]
