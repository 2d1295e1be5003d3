"""Compares the NVML source with nvidia-smi on a real GPU; see README.md beside it."""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2

from collector.sources.gpu.nvml import OFFERED, NvmlConfig, NvmlSource
from collector.sources.protocols import Place, Tools
from detectors.records import Absence, Reading

MIB = 1_048_576
GIB = 1_073_741_824
HOLD = """
import sys, torch
block = torch.zeros(2**28, dtype=torch.float32, device="cuda")
torch.cuda.synchronize()
print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), flush=True)
sys.stdin.read()
"""
ASKED = ("index", "uuid", "memory.used", "memory.total", "temperature.gpu", "power.draw")


@dataclass
class Report:
    """What came of the checks."""

    write: Callable[[str], object] = print
    failed: list[str] = field(default_factory=list)

    def check(self, name: str, good: object, words: object = "") -> None:
        self.write(f"{'PASS' if good else 'FAIL'} {name}: {words}")
        if not good:
            self.failed.append(name)

    def near(self, name: str, ours: float, theirs: float, *, within: float) -> None:
        words = f"ours {ours:g}, nvidia-smi {theirs:g}, at most {within:g} apart"
        self.check(name, abs(ours - theirs) <= within, words)

    def skip(self, name: str, why: str) -> None:
        self.write(f"SKIP {name}: {why}")


def smi_rows(command: Sequence[str], asked: Sequence[str] = ASKED) -> list[dict[str, str]]:
    """Return what nvidia-smi says, a mapping a device."""
    query = [*command, f"--query-gpu={','.join(asked)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(query, check=True, capture_output=True, text=True, timeout=30).stdout
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(asked, row, strict=True)) for row in rows if row]


def compare(report: Report, reading: Reading, rows: Sequence[Mapping[str, str]]) -> None:
    """Compare one reading with what nvidia-smi said at about the same time."""
    for row in rows:
        device = row["index"]
        if device not in reading.parts.get("gpu_memory_total_bytes", {}):
            report.skip(f"GPU {device}", "not read: another selection, or split by MIG")
            continue
        pairs = (
            ("memory used, MiB", "gpu_memory_used_bytes", "memory.used", MIB, 64.0),
            ("memory total, MiB", "gpu_memory_total_bytes", "memory.total", MIB, 1.0),
            ("temperature, C", "gpu_temperature_celsius", "temperature.gpu", 1.0, 3.0),
            ("power, W", "gpu_power_watts", "power.draw", 1.0, 60.0),
        )
        for words, signal, column, scale, within in pairs:
            name = f"GPU {device} {words}"
            ours = reading.parts.get(signal, {}).get(device)
            try:
                theirs = float(row[column])
            except ValueError:  # [N/A]
                report.check(name, ours is None, f"nvidia-smi says {row[column]}, ours {ours}")
                continue
            if ours is None:
                report.check(name, good=False, words=f"absent: {reading.absent.get(signal)}")
            else:
                report.near(name, ours / scale, theirs, within=within)


def check_shape(report: Report, reading: Reading) -> None:
    """Check what holds for any reading of a machine with a sound GPU."""
    report.check("the reading is up", reading.up, reading.problem or "no problem")
    missing = OFFERED - reading.known
    report.check("every signal has a value or a reason", not missing, sorted(missing))
    strange = set(reading.absent.values()) - {Absence.NO_FAMILY, Absence.NO_SAMPLE}
    report.check("nothing is absent for a strange reason", not strange, sorted(strange))
    ratio = reading.values.get("gpu_utilization_ratio", 0.0)
    report.check("the utilisation is a ratio", 0.0 <= ratio <= 1.0, ratio)
    if "gpu_throttled" in reading.values:
        flag = reading.values["gpu_throttled"]
        report.check("throttling is a flag", flag in {0.0, 1.0}, flag)
    for finding in reading.findings:
        report.write(f"NOTE {finding.code}: {finding.text}")
    for signal, absence in sorted(reading.absent.items()):
        report.write(f"NOTE {signal} is absent: {absence}")


@contextmanager
def holding(python: str) -> Iterator[tuple[int, int, int] | str]:
    """Hold 1 GiB of GPU memory in a torch process; yield its pid and bytes, or why not."""
    command = [python, "-c", HOLD]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        try:
            if len(line) == 2:  # allocated, reserved
                yield process.pid, int(line[0]), int(line[1])
            else:
                _, words = process.communicate(timeout=30)
                yield (words.strip().splitlines() or ["it ended without a word"])[-1]
        finally:
            if process.poll() is None:
                process.communicate(timeout=60)


def source_of(client: httpx2.AsyncClient, **keys: object) -> NvmlSource:
    now = datetime.now  # noqa: TID251  # a program of its own: here is the real clock
    tools = Tools(client, lambda: now(UTC), time.monotonic, 30.0)
    settings = NvmlConfig.model_validate({"kind": "nvml", "interval": 30.0, **keys})
    return NvmlSource(settings, Place("check", "gpu", "http://127.0.0.1:1"), tools)


async def check(report: Report, smi: Sequence[str], python: str, keys: dict[str, object]) -> None:
    """Run all checks."""
    async with httpx2.AsyncClient() as client:
        source = source_of(client, **keys)
        first = await source.read()
        check_shape(report, first)
        if not first.parts:
            report.check("a GPU was read", good=False, words="see the notes above")
            return
        compare(report, await source.read(), smi_rows(smi))
        times = []
        for _ in range(20):
            times.append((await source.read()).scrape_seconds)
            await asyncio.sleep(0.1)
        times.sort()
        report.check("a read is quick", times[10] < 0.5, f"median {times[10]:.4f} s of 20")
        await check_process(report, client, python, keys)
        await source.close()


async def check_process(
    report: Report, client: httpx2.AsyncClient, python: str, keys: dict[str, object]
) -> None:
    """Check that 1 GiB of one of our own processes is seen as the target's."""
    before = source_of(client, **keys)
    used_before = (await before.read()).values.get("gpu_memory_used_bytes", 0.0)
    with holding(python) as held:
        if isinstance(held, str):
            report.skip("process memory and allocator", f"no torch with CUDA: {held}")
            await before.close()
            return
        pid, allocated, reserved = held
        source = source_of(client, **keys, processes={"pids": [pid]})
        reading = await source.read()
        grown = reading.values.get("gpu_memory_used_bytes", 0.0) - used_before
        own = reading.values.get("gpu_process_memory_bytes", 0.0)
        await source.close()
    await before.close()
    report.check("the allocator holds what was asked for", allocated >= GIB, allocated)
    report.check("reserved is at least allocated", reserved >= allocated, reserved)
    report.check("the device's memory grew with it", grown >= reserved, f"{grown:g} bytes")
    words = f"{own:g} bytes; {[it for it in reading.processes if it.pid == pid]}"
    report.check("the process's memory is the target's", own >= reserved, words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="*", help="indices or UUIDs; all if not given")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--smi", default="nvidia-smi", help="the program to compare with")
    parser.add_argument("--seconds", type=float, default=240.0, help="longest run")
    found = parser.parse_args(arguments)
    report = Report()
    smi = shutil.which(found.smi)
    if smi is None:
        report.check("nvidia-smi is there", good=False, words=f"{found.smi} is not on PATH")
        return 1
    keys: dict[str, object] = {"devices": found.devices} if found.devices else {}
    try:
        asyncio.run(asyncio.wait_for(check(report, [smi], found.python, keys), found.seconds))
    except TimeoutError:
        report.check("done in time", good=False, words=f"not within {found.seconds:g} s")
    print(f"{len(report.failed)} failed" if report.failed else "all passed")  # noqa: T201  # its answer
    return 1 if report.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
