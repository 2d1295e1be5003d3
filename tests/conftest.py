"""Fixtures of the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, the loop of the service."""
    return "asyncio"


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of recorded inputs."""
    return Path(__file__).parent / "fixtures"
