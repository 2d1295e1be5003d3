"""The memory of a process of this machine and of its children, and its restarts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collector.sources.bounded_patterns import BoundedPattern, compile_bounded
from collector.sources.host.cgroup_files import HostError
from collector.sources.host.process_files import (
    ProcessTree,
    pid_in_file,
    pids_by_command,
    pids_by_port,
    process_tree,
)
from collector.sources.looking import Eye, LookSource, Moment, Seen, in_thread
from collector.sources.protocols import Place, Source, Tools
from collector.values import Seconds, refuse
from detectors.remarks import Noticed

OFFERS: Final = frozenset(
    {"memory_rss_bytes", "memory_anon_bytes", "memory_swap_bytes", "restarts_total"}
)


class ProcessConfig(BaseModel):
    """Memory and restarts of a process of this machine; exactly one key says which."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["process"] = "process"
    pid_file: Path | None = Field(default=None, description="File with the process's number.")
    command: BoundedPattern | None = Field(
        default=None, description="Pattern in its command line, arguments joined by blanks."
    )
    port: int | None = Field(default=None, ge=1, le=65_535, description="Port it listens on.")
    children: bool = Field(default=True, description="Count the processes that it started, too.")
    root: Path = Field(default=Path("/"), description="Where the host's `proc` is, in a container.")
    interval: Seconds = Field(default=10.0, description="Time between reads.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = {"pid_file": self.pid_file, "command": self.command, "port": self.port}
        named = [name for name, way in ways.items() if way is not None]
        if len(named) != 1:
            came = f"{' and '.join(named)} came" if named else "none of them came"
            refuse("exactly one of pid_file, command and port", came)
        return self

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        look = in_thread(_Process(self).look, self.kind, tools)
        return LookSource(Eye(self.kind, OFFERS, look), place, tools)


class _Process:
    """What is remembered of a process: which life of it was seen last, and how many ended."""

    def __init__(self, settings: ProcessConfig) -> None:
        self._settings = settings
        self._pattern: re.Pattern[str] | None = None
        self._life: tuple[int, int] | None = None
        self._restarts = 0

    def look(self, moment: Moment) -> Seen:
        """Read the process once."""
        del moment
        it = self._settings
        try:
            pids = self._pids()
            tree = process_tree(it.root, pids, children=it.children) if pids else None
        except HostError as error:
            return Seen(problem=str(error), outcome="unusable")
        except (OSError, ValueError, LookupError) as error:  # of a line that the kernel half wrote
            text = f"processes cannot be read: {type(error).__name__}: {error}"
            return Seen(problem=text[:200], outcome="unusable")
        if tree is None:
            return Seen(problem=self._gone(pids), outcome="unusable")
        return self._seen(tree)

    def _seen(self, tree: ProcessTree) -> Seen:
        life = (tree.pid, tree.start)
        restarted = self._life is not None and life != self._life
        noticed: tuple[Noticed, ...] = ()
        if restarted:
            self._restarts += 1
            before = str(self._life[0]) if self._life else ""
            noticed = (Noticed("restart", f"pid {before}", f"pid {tree.pid}"),)
        self._life = life
        memory = tree.memory
        values = {"memory_rss_bytes": memory.rss, "restarts_total": float(self._restarts)}
        if memory.anon is not None:
            values["memory_anon_bytes"] = memory.anon
        if memory.swap is not None:
            values["memory_swap_bytes"] = memory.swap
        parts = {"restarts_total": {"process": float(self._restarts)}}
        return Seen(values=values, parts=parts, noticed=noticed, restarted=restarted)

    def _pids(self) -> list[int]:
        it = self._settings
        if it.pid_file is not None:
            return [pid_in_file(it.root, it.pid_file)]
        if it.port is not None:
            return pids_by_port(it.root, it.port)
        if self._pattern is None:
            self._pattern = compile_bounded(it.command or "")
        return pids_by_command(it.root, self._pattern, but=(os.getpid(),))

    def _gone(self, pids: list[int]) -> str:
        if self._settings.command is not None:
            return "no process has the configured `command` in its command line; is it running?"
        return f"process {', '.join(map(str, pids[:8]))} is gone; is the server running?"
