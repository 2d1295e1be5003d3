"""Which processes on a GPU are the target's own, and how sure that is.

The driver lists pids. They are compared with what `/proc` shows: the process that listens on the
target's port, or those that the configuration names, and everything that descends from them. A pid
of another namespace proves nothing, however familiar its number, so it is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.bounded_patterns import BoundedPattern, compile_bounded
from collector.sources.host.proc import (
    ancestry,
    command_line,
    foreign_namespace,
    holds_gpu,
    listeners,
    process_facts,
)
from detectors.remarks import Attribution, Finding, GpuProcess

SIGNAL: Final = "gpu_process_memory_bytes"
MAX_PROCESSES: Final = 256
LOOK_AGAIN_READS: Final = 6  # after a vain look through all processes
HIDDEN_BYTES: Final = 1_073_741_824  # in use by nobody: more than a driver needs for itself
_LAUNCHERS: Final = frozenset(
    {"text-generation"}
)  # starts router and shards side by side; 15 chars


class OwnProcesses(BaseModel):
    """Which processes are the target's own; nothing given means: who listens on its port."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    pid_file: Path | None = Field(default=None, description="File that holds the server's pid.")
    pids: tuple[int, ...] = Field(default=(), max_length=256, description="Pids of the server.")
    command: BoundedPattern | None = Field(
        default=None, description="Pattern found in the command line of the server."
    )

    @property
    def named(self) -> bool:
        return bool(self.pid_file or self.pids or self.command)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """What the driver says of one process on one device; bytes are None where it will not say."""

    device: str
    pid: int
    used_bytes: float | None


@dataclass(frozen=True, slots=True)
class Owned:
    """The processes with their owners, the target's own bytes by device, and what stood in the way.

    A device is missing from `own_bytes` where the target's share of it cannot be told.
    """

    processes: tuple[GpuProcess, ...]
    own_bytes: Mapping[str, float]
    findings: tuple[Finding, ...]


class Owners:
    """Attributes GPU processes to one target; remembers who listens on its port."""

    def __init__(self, settings: OwnProcesses, port: int, *, proc: Path) -> None:
        self._settings = settings
        self._port = port
        self._proc = proc
        self._pattern = compile_bounded(settings.command) if settings.command else None
        self._listening: dict[int, int] = {}  # pid to when it started
        self._denied = 0
        self._heard = False
        self._wait = 0

    def attribute(self, rows: Sequence[GpuRow], used_bytes: Mapping[str, float]) -> Owned:
        """Say whose the processes are.

        Args:
            rows: What the driver lists, of all devices.
            used_bytes: Memory in use by device; a device with memory and no process hides some.
        """
        rows = rows[:MAX_PROCESSES]
        roots, findings = self._roots() if rows else (frozenset[int](), [])
        foreign = {row.pid for row in rows if self._foreign(row.pid)}
        owners = {
            row.pid: "unknown" if row.pid in foreign else self._owner(row.pid, roots)
            for row in rows
        }
        findings += self._doubts(owners, foreign, roots)
        owners = self._settled(owners, foreign)
        findings += _unsaid(rows)
        hidden = self._hidden(rows, used_bytes)
        if hidden:
            findings.append(_hidden_finding(hidden))
        own = {
            device: share
            for device in used_bytes
            if device not in hidden
            and (share := _share([row for row in rows if row.device == device], owners)) is not None
        }
        processes = tuple(self._process(row, owners[row.pid]) for row in rows)
        return Owned(processes, own, tuple(findings))

    def _process(self, row: GpuRow, owner: Attribution) -> GpuProcess:
        facts = process_facts(self._proc, row.pid)
        name = facts.name if facts else ""
        return GpuProcess(row.device, row.pid, row.used_bytes or 0.0, name, owner)

    def _foreign(self, pid: int) -> bool:
        """Whether a pid of the driver may be of another namespace than ours."""
        if process_facts(self._proc, pid) is None:
            return True
        return foreign_namespace(self._proc) and not holds_gpu(self._proc, pid)

    def _owner(self, pid: int, roots: frozenset[int]) -> Attribution:
        for facts in ancestry(self._proc, pid):
            if facts.pid in roots:
                return "target"
            if self._pattern and self._pattern.search(command_line(self._proc, facts.pid)):
                return "target"
        return "other" if roots or self._pattern else "unknown"

    def _settled(
        self, owners: Mapping[int, Attribution], foreign: set[int]
    ) -> dict[int, Attribution]:
        """Return the owners; without any own process found by the port, nobody's is certain."""
        if self._settings.named or "target" in owners.values():
            return dict(owners)
        return dict.fromkeys((*owners, *foreign), "unknown")

    def _roots(self) -> tuple[frozenset[int], list[Finding]]:
        if not self._settings.named:
            return self._port_holders(), []
        roots, findings = set(self._settings.pids), []
        if self._settings.pid_file is not None:
            try:
                roots.add(int(self._settings.pid_file.read_text()))
            except (OSError, ValueError) as error:
                text = (
                    f"processes.pid_file {self._settings.pid_file}: {type(error).__name__}; "
                    "expected a file with one pid, check its path and rights"
                )
                findings.append(Finding("gpu_pid_file", SIGNAL, text))
        return frozenset(roots), findings

    def _port_holders(self) -> frozenset[int]:
        """Return who listens on the target's port, and a launcher above, looked up when needed."""
        for pid, started in list(self._listening.items()):
            facts = process_facts(self._proc, pid)
            if facts is None or facts.started != started:
                self._listening.clear()
                break
        if not self._listening and self._wait <= 0:
            found = listeners(self._proc, self._port)
            self._denied, self._heard = found.denied, found.listening
            self._listening = self._with_launchers(found.pids)
            self._wait = 0 if self._listening else LOOK_AGAIN_READS
        self._wait -= 1
        return frozenset(self._listening)

    def _with_launchers(self, pids: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for pid in pids:
            for steps, facts in enumerate(ancestry(self._proc, pid)):
                if steps == 0 or (steps == 1 and facts.name in _LAUNCHERS):
                    found[facts.pid] = facts.started
        return found

    def _hidden(self, rows: Sequence[GpuRow], used_bytes: Mapping[str, float]) -> list[str]:
        """Return devices on which much memory is used by nobody that we are shown."""
        seen = {row.device for row in rows}
        return [
            device
            for device, used in used_bytes.items()
            if device not in seen and used >= HIDDEN_BYTES
        ]

    def _doubts(
        self, owners: Mapping[int, Attribution], foreign: set[int], roots: frozenset[int]
    ) -> list[Finding]:
        findings = []
        if foreign:
            listed = ", ".join(map(str, sorted(foreign)[:8]))
            text = (
                f"the driver lists pids that are not of this pid namespace ({listed}), so they "
                "cannot be told apart; run Fusewire with hostPID: true (docker: --pid=host), or on "
                "the host itself"
            )
            findings.append(Finding("gpu_pid_namespace", SIGNAL, text))
        if self._settings.named or not owners.keys() - foreign or "target" in owners.values():
            return findings
        findings.append(Finding("gpu_processes_unassigned", SIGNAL, self._unassigned(roots)))
        return findings

    def _unassigned(self, roots: frozenset[int]) -> str:
        if roots:
            pids = ", ".join(map(str, sorted(roots)[:8]))
            why = f"port {self._port} is held by pid {pids}, and no GPU process descends from it"
        elif not self._heard:
            why = f"nothing on this machine listens on the target's port {self._port}"
        else:
            why = (
                f"who listens on port {self._port} cannot be seen ({self._denied} processes of "
                "other users could not be looked into)"
            )
        return f"{why}; name the server by processes.pid_file, processes.pids or processes.command"


def _share(rows: Sequence[GpuRow], owners: Mapping[int, Attribution]) -> float | None:
    """Return the target's bytes on one device; None where they cannot be told."""
    own = [row for row in rows if owners[row.pid] == "target"]
    if any(row.used_bytes is None for row in own):
        return None
    if not own and any(owners[row.pid] == "unknown" for row in rows):
        return None
    return sum(row.used_bytes or 0.0 for row in own)


def _unsaid(rows: Sequence[GpuRow]) -> list[Finding]:
    if all(row.used_bytes is not None for row in rows):
        return []
    text = (
        "the driver does not say how much memory single processes hold (MIG without rights, or a "
        "virtual GPU); run Fusewire as root, or rely on the device's memory"
    )
    return [Finding("gpu_process_memory_hidden", SIGNAL, text)]


def _hidden_finding(devices: Sequence[str]) -> Finding:
    text = (
        f"memory of GPU {', '.join(devices[:8])} is in use and the driver lists no process to it: "
        "it hides processes of other containers; run Fusewire with hostPID: true (docker: "
        "--pid=host)"
    )
    return Finding("gpu_processes_hidden", SIGNAL, text)
