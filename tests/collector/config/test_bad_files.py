"""Every file of `tests/fixtures/config/bad` holds one mistake; its message stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.config import ConfigError, load

BAD = Path(__file__).parents[2] / "fixtures" / "config" / "bad"
FILES = sorted(BAD.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_gets_the_message_that_stands_beside_it(file: Path) -> None:
    expected = file.with_suffix(".expected").read_text(encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        load(file, {})

    assert "".join(f"{problem}\n" for problem in caught.value.problems) == expected


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_holds_one_mistake(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, {})

    assert len(caught.value.problems) == 1


def test_the_corpus_is_complete_and_has_no_orphans() -> None:
    expected = {file.stem for file in BAD.glob("*.expected")}

    assert expected == {file.stem for file in FILES}
    assert len(FILES) >= 30
