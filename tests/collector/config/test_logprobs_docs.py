"""The pages on logprobs: configurations load, lines are taken, names exist."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.config import load
from collector.ingest.decode import decode
from collector.ingest.records import Defaults, Limits, Missing, Reason, TierNames
from exporters.catalog import CATALOG

FOLDER = Path(__file__).parents[3] / "docs" / "logprobs"
PAGES = sorted(FOLDER.glob("*.md"))


def blocks(kind: str) -> list[Any]:
    return [
        pytest.param(found.group(1), id=f"{page.stem}-{number}")
        for page in PAGES
        for number, found in enumerate(
            re.finditer(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)
        )
    ]


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_configuration_is_yaml_and_ours_loads(text: str, tmp_path: Path) -> None:
    assert isinstance(yaml.safe_load(text), dict)
    if not text.startswith("tiers:"):
        return  # another program's
    file = tmp_path / "fusewire.yaml"
    file.write_text(text)

    assert load(file, {}).tiers


@pytest.mark.parametrize("text", blocks("json"))
def test_a_line_is_taken_with_its_logprobs(text: str) -> None:
    defaults = Defaults(
        datetime(2026, 11, 29, 12, tzinfo=UTC), {"chat": TierNames()}, tier="chat", live=False
    )

    found = decode(text.encode(), defaults, Limits())

    assert (found.accepted, found.rejected) == (1, ())
    assert "output_surprisal_mean_nats" in found.batches[0].columns


@pytest.mark.parametrize("text", blocks("python"))
def test_python_compiles(text: str) -> None:
    compile(text, "docs", "exec")


def test_the_bodies_that_curl_sends_are_json() -> None:
    bodies = [
        body
        for page in PAGES
        for body in re.findall(r"-d '(\{.*?\})'", page.read_text(), re.DOTALL)
    ]

    assert len(bodies) >= 3
    assert all(isinstance(json.loads(body), dict) for body in bodies)


def test_every_metric_that_is_named_exists() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"\bfusewire_[a-z_]+_(?:total|ratio|bytes)\b", page.read_text())
    }

    assert named
    assert named <= {metric.name for metric in CATALOG.values()}


def test_every_reason_that_is_named_exists() -> None:
    reasons = {str(reason) for reason in (*Reason, *Missing)}
    named = {
        word
        for page in PAGES
        for word in re.findall(r"\(`([a-z]+_[a-z_]+|logits|malformed)`[),]", page.read_text())
    } - {"vocab_size", "sample_ratio", "retry_limit", "top_logprobs"}

    assert len(named) >= 6
    assert named <= reasons
