"""Drift report, 1M x 10, Parquet, no plots: ours, scipy per feature, Evidently's preset, the goal.

Evidently pins other versions of half of everything: it is run from an environment of its own,
`FUSEWIRE_EVIDENTLY_PYTHON`, its interpreter; without it that row is left out, and said so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

ROWS, FEATURES = 1_000_000, 10
GOAL_SECONDS, GOAL_MEGABYTES, GOAL_TIMES = 4.0, 400.0, 10.0
MEASURED = """
import resource, sys, time
begun = time.perf_counter()
sys.argv = ["fusewire", "drift", *sys.argv[1:], "--json"]
from collector.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
seconds = time.perf_counter() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(seconds, peak, code, file=sys.stderr)
"""
EVIDENTLY = """
import resource, sys, time
begun = time.perf_counter()
import pandas
from evidently import Report
from evidently.presets import DataDriftPreset
reference, current = map(pandas.read_parquet, sys.argv[1:])
Report([DataDriftPreset()]).run(current, reference).json()
seconds = time.perf_counter() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(seconds, peak, 0, file=sys.stderr)
"""


def written(path: Path, shift: float) -> Path:
    rng = np.random.default_rng(int(shift * 10))
    columns = {f"f{place}": rng.normal(size=ROWS) for place in range(FEATURES)}
    columns["f3"] += shift
    pq.write_table(pa.table(columns), path)
    return path


def measured(python: str, script: str, *files: Path) -> tuple[str, float, float, int]:
    """Run a script in a fresh process: its output, seconds with imports, peak MB, exit code."""
    done = subprocess.run(
        [python, "-c", script, *map(str, files)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, peak, code = done.stderr.split()[-3:]
    return done.stdout, float(seconds), float(peak), int(code)


def scipy_seconds(files: tuple[Path, Path]) -> tuple[float, list[float]]:
    begun = perf_counter()
    distances = []
    for place in range(FEATURES):
        samples = (pq.read_table(one, columns=[f"f{place}"])[0].to_numpy() for one in files)
        distances.append(float(stats.ks_2samp(*samples).statistic))
    return perf_counter() - begun, distances


@pytest.mark.bench
def test_a_report_of_a_million_rows_beside_scipy_and_evidently(tmp_path: Path) -> None:
    files = written(tmp_path / "ref.parquet", 0.0), written(tmp_path / "cur.parquet", 0.4)

    runs = [measured(sys.executable, MEASURED, *files) for _ in range(3)]
    output, seconds, peak, code = min(runs, key=lambda run: run[1])
    by_scipy, distances = scipy_seconds(files)

    print(f"\n{ROWS:,} rows x {FEATURES} features on both sides, Parquet, no plots")
    print(f"  {'fusewire drift, whole process':40}{seconds:8.2f} s {peak:8.0f} MB")
    print(f"  {'goal':40}{GOAL_SECONDS:8.2f} s {GOAL_MEGABYTES:8.0f} MB")
    print(f"  {'scipy.ks_2samp of each feature, reading':40}{by_scipy:8.2f} s")
    python = os.environ.get("FUSEWIRE_EVIDENTLY_PYTHON")
    if python:
        _, theirs, their_peak, _ = measured(python, EVIDENTLY, *files)
        print(f"  {'Evidently, DataDriftPreset':40}{theirs:8.2f} s {their_peak:8.0f} MB")
        verdict = "met" if theirs >= GOAL_TIMES * seconds else "MISSED"
        print(f"  {theirs / seconds:.1f} times Evidently, goal {GOAL_TIMES:g}: {verdict}")
    else:
        print("  Evidently: not run, FUSEWIRE_EVIDENTLY_PYTHON names no interpreter with it")
    met = seconds <= GOAL_SECONDS and peak <= GOAL_MEGABYTES
    print(f"  goal of time and memory: {'met' if met else 'MISSED'}")
    found = {one["feature"]: one for one in json.loads(output)["features"]}
    assert code == 1
    assert [name for name, one in found.items() if one["answer"] == "outside"] == ["f3"]
    for place, distance in enumerate(distances):
        assert found[f"f{place}"]["distance"] == pytest.approx(distance, abs=1e-12)
