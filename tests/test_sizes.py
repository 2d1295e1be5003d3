"""No module grows past what a person reads in one go (STYLE: 300 lines, 400 at most)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("collector", "detectors", "exporters", "dashboards", "alerts", "tests")
MOST_LINES = 400


def test_no_module_is_over_four_hundred_lines() -> None:
    modules = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules
    }

    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
