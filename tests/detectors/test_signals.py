"""The table of signals and their grids: fixed, versioned, and shared by everything that counts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.signals import (
    FLAG_GRID,
    MAX_EDGES,
    READING_SIGNALS,
    REQUEST_SIGNALS,
    SIGNALS,
    SIZE_GRID,
    Grid,
    Kind,
    grid_of,
    request_signal,
)

GRIDS = sorted({row.grid for row in REQUEST_SIGNALS if row.grid}, key=lambda grid: grid.name)


def test_every_request_signal_has_a_side_and_a_grid_and_no_other_signal_has() -> None:
    assert all(row.grid and row.side in {"input", "output"} for row in REQUEST_SIGNALS)
    assert all(row.grid is None and row.side == "" for row in READING_SIGNALS)


def test_names_carry_their_unit() -> None:
    for row in SIGNALS.values():
        if row.kind is Kind.COUNTER:
            assert row.name.endswith("_total")
        if row.unit in {"seconds", "ratio", "nats", "bytes"}:
            assert row.name.endswith("_" + row.unit)
        assert not re.search(r"percent|_ms$|milli", row.name)


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.name)
def test_grids_hold_their_bound_and_do_not_change_without_a_new_version(
    grid: Grid, fixtures: Path
) -> None:
    recorded = dict(
        line.split() for line in (fixtures / "grids.txt").read_text().splitlines() if line
    )

    digest = f"{len(grid.edges)}:{sum(edge * (i + 1) for i, edge in enumerate(grid.edges)):.6g}"

    assert len(grid.edges) <= MAX_EDGES
    assert recorded[grid.name] == digest, "edges changed: give the grid a new version name"


def test_a_value_on_an_edge_falls_below_it() -> None:
    counts = FLAG_GRID.count(np.asarray([0.0, 1.0, 1.0, np.nan]))

    assert counts.tolist() == [1, 2]


def test_small_sizes_have_a_bin_each() -> None:
    counts = SIZE_GRID.count(np.arange(0.0, 33.0))

    assert counts[:33].tolist() == [1] * 33


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50))
def test_counting_loses_nothing_but_nan_and_halves_add(values: list[float]) -> None:
    array = np.asarray(values, dtype=np.float64)
    for grid in GRIDS:
        whole = grid.count(array)

        assert whole.shape == (grid.bins,)
        assert whole.sum() == np.count_nonzero(~np.isnan(array))
        assert np.array_equal(whole, grid.count(array[::2]) + grid.count(array[1::2]))


@pytest.mark.parametrize(
    ("edges", "expected"),
    [((), "0 edges"), ((1.0, 1.0), "must rise"), ((1.0, float("inf")), "finite")],
)
def test_a_bad_grid_is_refused(edges: tuple[float, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Grid("bad-v1", edges)


def test_asking_for_an_unknown_request_signal_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"'kv_cache_usage_ratio' is not.*prompt_tokens"):
        request_signal("kv_cache_usage_ratio")
    assert grid_of("prompt_tokens") is SIZE_GRID
