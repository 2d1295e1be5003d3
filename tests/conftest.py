"""Fixtures of the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("quick", max_examples=25)  # `make check`; `make test` tries the usual 100


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, the loop of the service."""
    return "asyncio"


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of recorded inputs."""
    return Path(__file__).parent / "fixtures"
