"""A burst of 10,000 requests against a tier that answers 429: naive, and through the kit."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import prometheus_client
import pytest

from exporters.embed import client_kit

FILE = Path(client_kit.__file__)
BURST = Path(__file__).with_name("burst.py")
BARE = """
import sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path and "main" not in path]
sys.path.append(sys.argv[1])
try:
    import collector
except ImportError:
    pass
else:
    raise AssertionError("Fusewire is there")
import runpy
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ALONE = """
import asyncio, runpy, sys
module = runpy.run_path(sys.argv[1])
kit = module["ClientKit"](workers=2, queue_bound=4)
print([done.value for done in kit.map(lambda item: item * 2, range(6))])
async def twice(item):
    return item * 2
async def main():
    return [done.value async for done in kit.amap(twice, range(6))]
print(asyncio.run(main()))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages that holds prometheus-client and nothing else."""
    folder = tmp_path / "packages"
    shutil.copytree(Path(prometheus_client.__file__).parent, folder / "prometheus_client")
    return folder


def bare(packages: Path, *arguments: str, python: str = sys.executable) -> str:
    """Run a script in a Python that has prometheus-client and nothing else."""
    command = [python, "-I", "-S", "-c", BARE, str(packages), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=packages, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def burst(packages: Path, requests: int, *kit: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(bare(packages, str(BURST), str(requests), *kit))
    return found


@pytest.mark.slow
def test_a_burst_through_the_kit_keeps_memory_flat_and_retries_rare(packages: Path) -> None:
    copied = packages / "client_kit.py"
    shutil.copy(FILE, copied)

    naive_few, naive = burst(packages, 2000), burst(packages, 10_000)
    kit_few, kit = burst(packages, 2000, str(copied)), burst(packages, 10_000, str(copied))

    assert naive["done"] == kit["done"] == kit["answered"] == 10_000
    assert naive["retried"] / naive["sent"] > 0.5
    assert kit["limited"] > 0
    assert kit["retried"] / kit["sent"] <= 0.02
    assert kit["left"] == 0
    assert naive["peak_bytes"] > 3 * naive_few["peak_bytes"]
    assert kit["peak_bytes"] < 1.2 * kit_few["peak_bytes"]
    assert kit["peak_bytes"] < 0.1 * naive["peak_bytes"]


def test_it_runs_alone_on_prometheus_client_and_speaks_python_3_9(
    packages: Path, tmp_path: Path
) -> None:
    ast.parse(FILE.read_text(), feature_version=(3, 9))
    script = tmp_path / "alone.py"
    script.write_text(ALONE)

    for python in filter(None, [sys.executable, old_python()]):
        said = bare(packages, str(script), str(FILE), python=python)
        assert said.splitlines() == ["[0, 2, 4, 6, 8, 10]"] * 2


def old_python() -> str | None:
    """Return a Python 3.9 that runs, if this machine has one."""
    found = shutil.which("python3.9")
    if found is None:
        return None
    works = subprocess.run([found, "-c", ""], capture_output=True, check=False)
    return found if works.returncode == 0 else None
