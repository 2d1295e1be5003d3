"""The memory of a container or service of this machine, from its control group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from collector.sources.host.cgroup_files import (
    GroupMemory,
    HostError,
    group_memory,
    group_of_container,
    group_of_process,
)
from collector.sources.host.kills import RecentKills
from collector.sources.host.process_files import pid_in_file, process_memory
from collector.sources.looking import Eye, LookSource, Moment, Seen, in_thread
from collector.sources.page.series import Ledger, Point
from collector.sources.protocols import Place, Source, Tools
from collector.values import Seconds, refuse
from detectors.records import Absence
from detectors.remarks import Finding

OFFERS: Final = frozenset(
    {
        "memory_working_set_bytes",
        "memory_limit_bytes",
        "memory_rss_bytes",
        "memory_anon_bytes",
        "memory_swap_bytes",
        "memory_ooms_total",
    }
)
_WAYS: Final = ("path", "pid", "pid_file", "container_id", "own")


class CgroupConfig(BaseModel):
    """Memory of a control group, version 1 or 2; exactly one key says which group."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["cgroup"] = "cgroup"
    path: Path | None = Field(default=None, description="Folder of the group.")
    pid: int | None = Field(default=None, ge=1, description="A process in the group.")
    pid_file: Path | None = Field(default=None, description="File with the number of one.")
    container_id: Annotated[str, StringConstraints(pattern="^[0-9a-f]{12,64}$")] | None = Field(
        default=None, description="Id of the container, 12 to 64 hexadecimal digits."
    )
    own: bool = Field(default=False, description="The group of Fusewire itself.")
    root: Path = Field(
        default=Path("/"), description="Where the host's `proc` and `sys` are, in a container."
    )
    interval: Seconds = Field(default=10.0, description="Time between reads.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = (self.path, self.pid, self.pid_file, self.container_id, self.own or None)
        named = [name for name, way in zip(_WAYS, ways, strict=True) if way is not None]
        if len(named) != 1:
            came = f"{' and '.join(named)} came" if named else "none of them came"
            refuse("exactly one of path, pid, pid_file, container_id and own", came)
        return self

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        look = in_thread(_Group(self).look, self.kind, tools)
        return LookSource(Eye(self.kind, OFFERS, look), place, tools)


class _Group:
    """What is remembered of a group: where it was found, and the kills so far."""

    def __init__(self, settings: CgroupConfig) -> None:
        self._settings = settings
        self._ledger = Ledger()
        self._found: Path | None = None
        self._kills = RecentKills("memory_ooms_total")

    def look(self, moment: Moment) -> Seen:
        """Read the group once."""
        try:
            folder, process_rss = self._group()
            memory = group_memory(folder)
        except HostError as error:
            self._found = None
            return Seen(problem=str(error), outcome="unusable")
        except (OSError, ValueError) as error:
            self._found = None
            return Seen(problem=f"cgroup: {error}", outcome="unusable")
        values = _values(memory, process_rss)
        self._ledger.begin(None)
        if memory.oom_kills is not None:
            point = Point(str(folder), memory.oom_kills)
            parts = self._ledger.counter("memory_ooms_total", "oom_kill", (point,))
            values["memory_ooms_total"] = sum(parts.values())
        self._kills.take(values.get("memory_ooms_total"), moment)
        findings = [_no_limit(folder)] if memory.limit is None else []
        return Seen(
            values=values,
            absent=_reasons(memory),
            findings=(*findings, *self._kills.findings(moment)),
        )

    def _group(self) -> tuple[Path, float | None]:
        """Return the group's folder, and the resident memory of the process that was named.

        Raises:
            HostError: If there is none.
        """
        it, root = self._settings, self._settings.root
        if it.path is not None:
            return root / str(it.path).lstrip("/"), None
        if it.container_id is not None:
            if self._found is None or not self._found.is_dir():
                self._found = group_of_container(root, it.container_id)
            return self._found, None
        if it.own:
            return group_of_process(root, "self"), None
        pid = it.pid if it.pid_file is None else pid_in_file(root, it.pid_file)
        folder = group_of_process(root, str(pid))
        memory = process_memory(root, pid or 0)
        return folder, memory.rss if memory else None


def _no_limit(folder: Path) -> Finding:
    text = (
        f"no memory limit holds for cgroup {folder}: a leak takes the whole machine; "
        "set one (docker --memory, MemoryMax=, resources.limits.memory)"
    )
    return Finding("no_memory_limit", "memory_limit_bytes", text)


def _values(memory: GroupMemory, process_rss: float | None) -> dict[str, float]:
    values = {"memory_working_set_bytes": memory.working_set}
    if memory.limit is not None:
        values["memory_limit_bytes"] = memory.limit
    if memory.anon is not None:
        values["memory_anon_bytes"] = memory.anon
        values["memory_rss_bytes"] = memory.anon + memory.mapped
    if process_rss is not None:
        values["memory_rss_bytes"] = process_rss
    if memory.swap is not None:
        values["memory_swap_bytes"] = memory.swap
    return values


def _reasons(memory: GroupMemory) -> dict[str, Absence]:
    """Say why a value is missing; no limit is a state of its own, told by a finding, too."""
    missing = {
        "memory_limit_bytes": memory.limit,
        "memory_swap_bytes": memory.swap,
        "memory_ooms_total": memory.oom_kills,
        "memory_anon_bytes": memory.anon,
    }
    reasons = {signal: Absence.NO_FAMILY for signal, value in missing.items() if value is None}
    if memory.limit is None:
        reasons["memory_limit_bytes"] = Absence.UNUSABLE
    return reasons
