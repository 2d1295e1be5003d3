"""The processes that the demo starts, each ended by its own process id whatever happens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Child:
    """A running process of the demo, and the file that its output goes to."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    def tail(self) -> str:
        """Return the last lines that the process wrote."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


@asynccontextmanager
async def child(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    end_seconds: float = 15.0,
) -> AsyncIterator[Child]:
    """Run `command` in `folder`, output to `folder/NAME.log`; end it on the way out.

    `environ` is added to the environment of this process. A child that has not ended
    `end_seconds` after it was asked to is killed.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env={**os.environ, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends its children
        )
    try:
        yield Child(name, process, log)
    finally:
        await asyncio.shield(_end(process, end_seconds))


async def _end(process: asyncio.subprocess.Process, end_seconds: float) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), end_seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        if process.returncode is None:  # a second Ctrl-C while it was being ended
            process.kill()
