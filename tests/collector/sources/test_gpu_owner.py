"""Whose the GPU's processes are: by a made-up `/proc`, and by the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.sources.gpu.gpu_owner import GpuRow, Owned, Owners, OwnProcesses
from collector.sources.host.proc import ancestry, foreign_namespace, listeners, process_facts

FIRST_NAMESPACE = "pid:[4026531836]"
GIB = 2.0**30
TCP_HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid to inode\n"
)


class FakeProc:
    """A `/proc` of a few processes."""

    def __init__(self, root: Path, namespace: str = FIRST_NAMESPACE) -> None:
        self.root = root
        (root / "self" / "ns").mkdir(parents=True)
        (root / "self" / "ns" / "pid").symlink_to(namespace)
        (root / "net").mkdir()
        self.listen()

    def add(
        self, pid: int, parent: int, name: str, *files: str, started: int = 1, command: str = ""
    ) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        rest = " ".join(["0"] * 17)
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {rest} {started} 0 0\n")
        (folder / "cmdline").write_bytes((command or name).replace(" ", "\0").encode() + b"\0")
        for number, target in enumerate(files):
            (folder / "fd" / str(number)).symlink_to(target)

    def listen(self, *sockets: tuple[int, int]) -> None:
        lines = [
            f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {inode} 1 0\n"
            for port, inode in sockets
        ]
        (self.root / "net" / "tcp").write_text(TCP_HEAD + "".join(lines))

    def owners(self, **settings: object) -> Owners:
        return Owners(OwnProcesses.model_validate(settings), 8000, proc=self.root)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """A server (100) with an engine core (110), and a stranger (200)."""
    found = FakeProc(tmp_path / "proc")
    found.add(1, 0, "systemd")
    found.add(100, 1, "vllm serve", "socket:[77]", command="python -m vllm serve some-model")
    found.add(110, 100, "VLLM::EngineCore (0)", "/dev/nvidia0")
    found.add(200, 1, "python3", "/dev/nvidia0", command="python train.py")
    found.listen((8000, 77), (9000, 78))
    return found


ROWS = [GpuRow("0", 110, 3 * GIB), GpuRow("0", 200, GIB), GpuRow("1", 200, 2 * GIB)]
USED = {"0": 4 * GIB, "1": 2 * GIB}


def whose(owned: Owned) -> dict[int, str]:
    return {it.pid: it.attribution for it in owned.processes}


def codes(owned: Owned) -> set[str]:
    return {it.code for it in owned.findings}


@pytest.mark.parametrize(
    "settings",
    [{}, {"pids": [100]}, {"pids": [110]}, {"command": r"vllm serve"}, {"pid_file": "PID"}],
)
def test_own_are_the_server_and_what_descends_from_it(
    proc: FakeProc, tmp_path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "PID").write_text("100\n")
    if "pid_file" in settings:
        settings = {"pid_file": tmp_path / "PID"}

    owned = proc.owners(**settings).attribute(ROWS, USED)

    assert whose(owned) == {110: "target", 200: "other"}
    assert owned.own_bytes == {"0": 3 * GIB, "1": 0.0}
    assert owned.findings == ()
    assert owned.processes[0].name == "VLLM::EngineCore (0)"


def test_shards_beside_the_router_are_own_when_a_known_launcher_started_both(
    proc: FakeProc,
) -> None:
    proc.add(300, 1, "text-generation")
    proc.add(310, 300, "text-generation", "socket:[78]")
    proc.add(320, 300, "text-generation", "/dev/nvidia0")
    owners = Owners(OwnProcesses(), 9000, proc=proc.root)

    owned = owners.attribute([GpuRow("0", 320, GIB), GpuRow("0", 110, GIB)], USED)

    assert whose(owned) == {320: "target", 110: "other"}


def test_nobody_on_the_port_is_unknown_with_what_to_do(proc: FakeProc) -> None:
    proc.listen()

    owned = proc.owners().attribute(ROWS, USED)

    assert set(whose(owned).values()) == {"unknown"}
    assert owned.own_bytes == {}
    assert codes(owned) == {"gpu_processes_unassigned"}
    assert "nothing on this machine listens on the target's port 8000" in owned.findings[0].text
    assert "processes.pid_file" in owned.findings[0].text


def test_a_proxy_on_the_port_makes_the_others_nobodys_not_others(proc: FakeProc) -> None:
    proc.add(100, 1, "docker-proxy", started=1)
    proc.add(110, 1, "python")

    owned = proc.owners().attribute(ROWS, USED)

    assert set(whose(owned).values()) == {"unknown"}
    assert "held by pid 100" in owned.findings[0].text


def test_a_listener_that_was_restarted_is_looked_up_again(proc: FakeProc) -> None:
    owners = proc.owners()
    owners.attribute(ROWS, USED)
    proc.add(100, 1, "something else", started=9)
    (proc.root / "100" / "fd" / "0").unlink()
    proc.add(500, 1, "vllm serve", "socket:[77]")

    owned = owners.attribute([GpuRow("0", 500, GIB), GpuRow("0", 110, GIB)], USED)

    assert whose(owned) == {500: "target", 110: "other"}


def test_a_pid_that_is_not_here_is_unknown_and_the_finding_says_why(proc: FakeProc) -> None:
    owned = proc.owners().attribute([*ROWS, GpuRow("1", 999, GIB)], USED)

    assert whose(owned) == {110: "target", 200: "other", 999: "unknown"}
    assert owned.own_bytes == {"0": 3 * GIB}  # of device 1 it cannot be told
    assert codes(owned) == {"gpu_pid_namespace"}
    assert "hostPID: true" in owned.findings[0].text


def test_in_a_container_a_familiar_number_counts_only_with_the_device_open(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc", "pid:[4026532000]")
    proc.add(1, 0, "vllm", "socket:[77]", "/dev/nvidia0")
    proc.add(200, 1, "bash")
    proc.listen((8000, 77))

    owned = proc.owners().attribute([GpuRow("0", 1, GIB), GpuRow("0", 200, GIB)], {"0": 2 * GIB})

    assert whose(owned) == {1: "target", 200: "unknown"}
    assert codes(owned) == {"gpu_pid_namespace"}


def test_memory_in_use_by_nobody_is_hidden_not_zero(proc: FakeProc) -> None:
    owned = proc.owners().attribute([], {"0": 20 * GIB, "1": 0.1 * GIB})

    assert owned.own_bytes == {"1": 0.0}
    assert codes(owned) == {"gpu_processes_hidden"}


def test_a_pid_file_that_cannot_be_read_is_a_finding(proc: FakeProc, tmp_path: Path) -> None:
    (tmp_path / "PID").write_text("soon")

    owned = proc.owners(pid_file=tmp_path / "PID").attribute(ROWS, USED)

    assert set(whose(owned).values()) == {"unknown"}
    assert codes(owned) == {"gpu_pid_file"}


def test_more_processes_than_can_be_kept_are_cut_off(proc: FakeProc) -> None:
    rows = [GpuRow("0", 110, 1.0)] * 1000

    owned = proc.owners().attribute(rows, USED)

    assert len(owned.processes) == 256


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A real process that listens, with a child of its own."""
    script = (
        "import socket, subprocess, sys; s = socket.create_server(('127.0.0.1', 0));"
        "c = subprocess.Popen(['sleep', '30']);"
        "print(s.getsockname()[1], c.pid, flush=True); sys.stdin.read(); c.kill(); c.wait()"
    )
    command = [sys.executable, "-S", "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port, child = map(int, process.stdout.readline().split())
        yield process, port * 10_000_000 + child
        process.communicate()


def test_a_real_listener_and_its_child_are_found_in_the_real_proc(
    server: tuple[subprocess.Popen[str], int],
) -> None:
    process, packed = server
    port, child = divmod(packed, 10_000_000)

    found = listeners(Path("/proc"), port)

    assert found.pids == {process.pid}
    assert [it.pid for it in ancestry(Path("/proc"), child)][:2] == [child, process.pid]
    facts = process_facts(Path("/proc"), child)
    assert facts is not None
    assert (facts.parent, facts.name) == (process.pid, "sleep")
    assert foreign_namespace(Path("/proc")) == (
        str(Path("/proc/self/ns/pid").readlink()) != FIRST_NAMESPACE
    )
    assert process_facts(Path("/proc"), os.getpid()) is not None
    assert listeners(Path("/proc"), 1).listening is False


@pytest.mark.parametrize("command", [r"(a+)+$", "", "vllm (serve"])
def test_a_command_that_could_take_for_ever_or_names_everything_is_refused(command: str) -> None:
    """The pattern meets command lines that any user of the machine may write."""
    with pytest.raises(ValidationError, match="regular expression"):
        OwnProcesses(command=command)
