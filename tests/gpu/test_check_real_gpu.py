"""The script for a real GPU, tried against the stand-in: it must be able to pass and to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector.sources.fake_gpu import FakeGpus, compile_fake

pytestmark = pytest.mark.slow

SMI = """#!/bin/sh
echo "0, GPU-aaaa, {used}, 81920, 71, 412.50"
echo "1, GPU-bbbb, 10240, 81920, 41, [N/A]"
"""


def run_check(folder: Path, *, used: int) -> subprocess.CompletedProcess[str]:
    """Run the script on two devices of the stand-in and a printer in place of nvidia-smi."""
    compile_fake(folder, soname=True)
    gpus = FakeGpus(folder / "gpus.txt")
    gpus.set(_1_milliwatts=90_000)
    smi = folder / "smi"
    smi.write_text(SMI.format(used=used))
    smi.chmod(0o755)
    options = ["--smi", str(smi), "--python", "/bin/false"]
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu.check_real_gpu", *options],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "FUSEWIRE_FAKE_GPU": str(gpus.path),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_numbers_that_agree_pass_and_one_that_is_off_fails(tmp_path: Path) -> None:
    done = run_check(tmp_path, used=30_720)
    off = run_check(tmp_path, used=20_000)

    lines = done.stdout.splitlines()
    assert "PASS the reading is up: no problem" in lines
    assert "PASS GPU 0 memory used, MiB: ours 30720, nvidia-smi 30720, at most 64 apart" in lines
    assert "PASS GPU 1 temperature, C: ours 40, nvidia-smi 41, at most 3 apart" in lines
    assert [it for it in lines if it.startswith("FAIL")] == [
        "FAIL GPU 1 power, W: nvidia-smi says [N/A], ours 90.0"
    ]
    assert any(it.startswith("SKIP process memory and allocator") for it in lines)
    assert (done.returncode, lines[-1]) == (1, "1 failed")
    assert "FAIL GPU 0 memory used" in off.stdout
    assert off.stderr == ""


def test_a_machine_without_nvidia_smi_fails_with_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.check_real_gpu", "--smi", "no-such-smi"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout == "FAIL nvidia-smi is there: no-such-smi is not on PATH\n"
