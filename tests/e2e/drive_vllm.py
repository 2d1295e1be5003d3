"""Drive a real vLLM into saturation and watch the real `fusewire serve` trip and recover.

Starts both as processes of its own and ends them by their ids. Prints what it sees as it goes and
a summary; exits 0 only if all of it was seen.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2

from tests.e2e.load import TIER, Load
from tests.e2e.looking import Seen, after, say, watch

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PORT, SERVICE_PORT = 28_100, 28_131
ENGINE = f"http://127.0.0.1:{ENGINE_PORT}"
SERVICE = f"http://127.0.0.1:{SERVICE_PORT}"
START_SECONDS = 300.0
CALM_SECONDS = 15.0
LOAD_SECONDS = 90.0
SHED_SECONDS = 15.0  # the load goes on so long under a tripped breaker
RECOVERY_SECONDS = 180.0
CLIENTS = 24
PROBES = "probes"  # in the folder of the run: the sockets of the allocator probe
CONFIG = f"""\
listen: 127.0.0.1:{SERVICE_PORT}
mode: enforce
scrape_interval: 1s
tick: 2s
tiers:
  {TIER}:
    targets:
      - id: vllm
        url: {ENGINE}
        engine: vllm
        request_slots: 8
        sources:
          - {{kind: allocator, directory: {PROBES}}}
    baseline: {{requests: 100}}
    breaker: {{breach_n: 2, breach_m: 3, warmup_seconds: 5, open_base_seconds: 10}}
    detectors:  # the default set, but for a cache of 32 blocks, whose usage jumps
      - kind: limit
        name: kv_cache
        signal: kv_cache_usage_ratio
        trip: 0.9
        clear: 0.5
        breaches: 2
        when: {{signal: requests_waiting}}
        cause: kv_cache_saturated
      - kind: queue_growth
      - kind: stalled
      - kind: corrupted
      - kind: down
      - {{kind: ks, side: input}}
      - {{kind: ks, side: output}}
      - kind: kl
"""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def process(name: str, command: list[str], log: Path, **environ: str) -> Iterator[None]:
    """Run a command in a process group of its own, and end that group."""
    with log.open("wb") as file:
        child = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environ},
            start_new_session=True,
        )
    say(f"started {name}, process {child.pid}, log {log}")
    try:
        yield
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            if child.poll() is None or how is signal.SIGKILL:
                try:
                    os.killpg(child.pid, how)
                    child.wait(20)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        say(f"ended {name}")


async def answers(client: httpx2.AsyncClient, url: str, log: Path) -> None:
    """Wait until `url` answers 200."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if (await client.get(url)).is_success:
                return
        except httpx2.HTTPError:
            pass
        await asyncio.sleep(1)
    raise SystemExit(f"{url} did not answer within {START_SECONDS:g} s; the end of {end(log)}")


def end(log: Path) -> str:
    """Return the name of a log and its last lines."""
    return f"{log}:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}"


async def story(client: httpx2.AsyncClient, seen: Seen, config: Path) -> Load:
    """Calm traffic, too much traffic, and the way back."""
    load = Load(client, engine=ENGINE, fusewire=SERVICE)
    say("calm: 2 clients, short answers")
    calm = after(CALM_SECONDS)
    await asyncio.gather(
        load.run(2, tokens=(8, 24), until=calm), watch(client, SERVICE, seen, until=calm)
    )
    say(f"load: {CLIENTS} clients, 150 to 350 tokens each, 1,024 tokens of KV cache")
    late = after(LOAD_SECONDS)

    def enough() -> bool:
        shed_for = time.monotonic() - seen.tripped_at if seen.tripped else 0.0
        return late() or (shed_for >= SHED_SECONDS and load.counts.refused_with_retry_after > 0)

    await asyncio.gather(
        load.run(CLIENTS, tokens=(150, 350), until=enough),
        watch(client, SERVICE, seen, until=enough),
    )
    await load.flush()
    await asyncio.to_thread(command, config, "status")
    say("no load: waiting for the breaker to let traffic back")
    late_again = after(RECOVERY_SECONDS)
    await watch(client, SERVICE, seen, until=lambda: seen.recovered or late_again())
    return load


def command(config: Path, *arguments: str) -> int:
    """Run a command of Fusewire, as a person would, and print its output."""
    line = [str(ROOT / ".venv/bin/fusewire"), *arguments, "--config", str(config)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    say(f"$ fusewire {' '.join(arguments)}   (exit {done.returncode})")
    sys.stdout.write("".join(f"           {row}\n" for row in done.stdout.splitlines()[:25]))
    return done.returncode


def summary(seen: Seen, load: Load, *, audit_holds: bool) -> bool:
    """Print what was seen and what was not; return whether all was."""
    counts = load.counts
    checks = {
        f"engine recognised: vLLM {seen.version}": bool(seen.version),
        f"KV cache full: {seen.kv_cache_usage_ratio:.2f}": seen.kv_cache_usage_ratio >= 0.95,
        f"requests waited: {seen.requests_waiting:g}": seen.requests_waiting >= 1,
        f"preemptions: {seen.preemptions_total:g}": seen.preemptions_total >= 1,
        f"verdicts: {', '.join(seen.verdicts) or 'none'}": (
            "kv_cache_saturated critical" in seen.verdicts
        ),
        f"tier shed: admitted down to {seen.lowest_admit_ratio:.2f}": seen.tripped,
        f"refusals with Retry-After: {counts.refused_with_retry_after}": (
            counts.refused_with_retry_after > 0
        ),
        "traffic back: admits 1.00": seen.recovered,
        f"generations taken in: {counts.accepted}, rejected {counts.rejected}": (
            counts.accepted > 0 and counts.rejected == 0
        ),
        f"baselines: {seen.baselines or 'none'}": bool(seen.baselines),
        "audit chain holds": audit_holds,
        f"allocator probe in vLLM: {seen.allocator or 'not read'}": bool(seen.allocator),
    }
    say(f"clients: {counts.answered} answers, {counts.failed} failures {counts.statuses or ''}")
    for text, good in checks.items():
        say(f"{'seen    ' if good else 'NOT SEEN'}  {text}")
    return all(checks.values())


async def main(vllm: Path, folder: Path) -> int:
    """Run the whole of it."""
    config = folder / "fusewire.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    engine = [
        *(str(vllm), "serve", str(folder / "model"), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(ENGINE_PORT), "--dtype", "bfloat16"),
        *("--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"),
        *("--block-size", "32", "--num-gpu-blocks-override", "32"),
    ]
    service = [str(ROOT / ".venv/bin/fusewire"), "serve", "--config", str(config)]
    seen = Seen()
    with ExitStack() as stack:
        limits = httpx2.Limits(max_connections=CLIENTS * 2)
        async with httpx2.AsyncClient(timeout=120, limits=limits, trust_env=False) as client:
            environ = {**ENVIRONMENT, "FUSEWIRE_PROBE_DIR": str(folder / PROBES)}
            stack.enter_context(process("vLLM", engine, folder / "vllm.log", **environ))
            await answers(client, f"{ENGINE}/health", folder / "vllm.log")
            sockets = sorted(path.stem for path in (folder / PROBES).glob("*.sock"))
            say(f"vLLM is healthy; its processes with an allocator probe: {', '.join(sockets)}")
            stack.enter_context(process("fusewire serve", service, folder / "fusewire.log"))
            await answers(client, f"{SERVICE}/-/ready", folder / "fusewire.log")
            say("Fusewire is ready")
            load = await story(client, seen, config)
            command(config, "audit", "show")
            holds = command(config, "audit", "verify") == 0
            good = summary(seen, load, audit_holds=holds)
    say("all seen" if good else "not all seen")
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.vllm.resolve(), chosen.folder.resolve())))
