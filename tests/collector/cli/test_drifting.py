"""`drift` as people and pipelines call it: exit codes, tables, JSON, a page, real generations."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from collector.cli.root import fusewire
from collector.reports.report import DriftReport
from tests.collector.reports.tables import write

ROWS = 2000


def drift(*arguments: str | Path) -> Result:
    return CliRunner().invoke(fusewire, ["drift", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A reference, one like it, and one that has drifted in one of two columns."""
    rng = np.random.default_rng(0)

    def rows(shift: float) -> dict[str, list[float]]:
        first, second = rng.normal(size=ROWS), rng.normal(shift, 1, size=ROWS)
        return {"steady": first.tolist(), "moved": second.tolist()}

    return (
        write(tmp_path / "ref.parquet", rows(0)),
        write(tmp_path / "same.csv", rows(0)),
        write(tmp_path / "moved.jsonl.gz", rows(1)),
    )


def test_equal_files_are_inside_and_exit_with_zero(files: tuple[Path, Path, Path]) -> None:
    result = drift(files[0], files[1])

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "inside: none of 2 features is outside the gate"


def test_drift_exits_with_one_and_names_the_feature(files: tuple[Path, Path, Path]) -> None:
    result = drift(files[0], files[2])

    assert result.exit_code == 1
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("drift: feature=moved  answer=outside  distance=0.")
    assert "why=P(moved > " in first
    assert last == "outside: 1 of 2 features outside the gate: moved"


def test_too_few_rows_exit_with_three(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", {"a": range(30)})

    result = drift(path, path)

    assert result.exit_code == 3
    assert "unsure, too little data to say: a" in result.stdout


def test_gates_level_and_columns_can_be_chosen(files: tuple[Path, Path, Path]) -> None:
    wide = drift(files[0], files[2], "--gate-ks", "0.6", "--gate-odds", "1000")
    named = drift(files[0], files[2], "--feature", "steady", "--correction", "bh")
    blind = drift(files[0], files[1], "--must-see", "0.01")

    assert wide.exit_code == 0
    assert named.exit_code == 0
    assert blind.exit_code == 3


def test_json_has_everything_and_a_page_is_written(
    files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    result = drift(files[0], files[2], "--json", "--html", tmp_path / "out" / "report.html")

    report = DriftReport.model_validate_json(result.stdout)
    assert result.exit_code == 1
    assert report.answer == "outside"
    moved, steady = report.features
    assert (moved.feature, steady.feature) == ("moved", "steady")
    assert moved.ks_p is not None
    assert moved.ks_p < 1e-100
    assert moved.quantiles[3].level == 0.5
    assert moved.wasserstein == pytest.approx(1, abs=0.1)
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.csv", "nowhere.csv"), "is no file"),
        (("{ref}", "{ref}", "--feature", "none"), "has no column 'none'"),
        (("{ref}", "{ref}", "--alpha", "2"), "Invalid value for '--alpha'"),
        (("{ref}", "{ref}", "--html", "/dev/null/page.html"), "cannot be written"),
    ],
)
def test_usage_and_files_that_cannot_be_read_exit_with_two(
    files: tuple[Path, Path, Path], arguments: tuple[str, ...], words: str
) -> None:
    result = drift(*(one.format(ref=files[0]) for one in arguments))

    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_logged_generations_are_compared_by_their_request_signals(
    tmp_path: Path, fixtures: Path
) -> None:
    recorded = fixtures / "generations"
    packed = (recorded / "corpus-a-baseline.jsonl.xz").read_bytes()
    lines = lzma.decompress(packed).splitlines(keepends=True)
    np.random.default_rng(0).shuffle(lines)  # in the file max_tokens goes round
    hot = lzma.decompress((recorded / "corpus-c-temp1.5.jsonl.xz").read_bytes())
    (tmp_path / "first.jsonl").write_bytes(b"".join(lines[:60]))
    (tmp_path / "second.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[60:])))
    (tmp_path / "hot.jsonl").write_bytes(hot)

    halves = drift(
        tmp_path / "first.jsonl", tmp_path / "second.jsonl.gz", "--json", "--must-see", "1"
    )
    hotter = drift(tmp_path / "first.jsonl", tmp_path / "hot.jsonl", "--json")

    quiet, found = (DriftReport.model_validate_json(one.stdout) for one in (halves, hotter))
    assert "outside" not in {one.answer for one in quiet.features}
    assert {"prompt_tokens", "output_entropy_nats"} <= {one.feature for one in quiet.features}
    assert "does not describe text, name it to compare it" in {one.reason for one in quiet.skipped}
    assert hotter.exit_code == 1
    assert "temperature" in {one.feature for one in found.features if one.answer == "outside"}
    assert "import" not in hotter.stdout
