"""The real pynvml with a library of ours behind it, and sources that are closed at the end."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pynvml
import pytest

from collector.sources.gpu.nvml import NvmlConfig, NvmlSource
from collector.sources.protocols import Tools
from tests.collector.sources.fake_gpu import FakeGpus, compile_fake
from tests.collector.sources.gpu.told import PLACE
from tests.collector.sources.servers import NOW


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ctypes.CDLL]:
    """Compile and load each variant of the stand-in once."""
    made: dict[tuple[str, ...], ctypes.CDLL] = {}

    def library(*options: str) -> ctypes.CDLL:
        if options not in made:
            folder = tmp_path_factory.mktemp("nvml")
            made[options] = ctypes.CDLL(str(compile_fake(folder, *options)))
        return made[options]

    return library


@pytest.fixture
def load(
    libraries: Callable[..., ctypes.CDLL], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., FakeGpus]]:
    """Let pynvml find a variant of the stand-in; at the end nobody may hold it any more."""
    loaded: list[FakeGpus] = []

    def use(*options: str) -> FakeGpus:
        gpus = FakeGpus(tmp_path / "gpus.txt", library=libraries(*options))
        monkeypatch.setattr(pynvml, "nvmlLib", gpus.library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setenv("FUSEWIRE_FAKE_GPU", str(gpus.path))
        loaded.append(gpus)
        return gpus

    yield use
    assert [gpus.holders for gpus in loaded] == [0] * len(loaded)


@pytest.fixture
def gpus(load: Callable[..., FakeGpus]) -> FakeGpus:
    return load()


@pytest.fixture
async def make() -> Any:
    """Make sources, and close them at the end."""
    made: list[NvmlSource] = []
    async with httpx2.AsyncClient() as client:

        def source(*, timeout: float = 5.0, proc: Path = Path("/proc"), **keys: Any) -> NvmlSource:
            tools = Tools(client, lambda: NOW, time.monotonic, timeout)
            made.append(NvmlSource(NvmlConfig(**keys), PLACE, tools, proc=proc))
            return made[-1]

        yield source
        for it in made:
            await it.close()
