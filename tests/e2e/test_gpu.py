"""The whole service on a machine whose NVIDIA library is ours: device labels, and a loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector.sources.fake_gpu import GIB, FakeGpus, compile_fake
from tests.e2e.harness import CALM, engine, serving, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CONFIG = """
listen: 127.0.0.1:0
scrape_interval: 200ms
tiers:
  chat:
    targets:
      - id: a
        url: {url}
        sources: [{{kind: nvml, interval: 200ms}}]
    detectors:
      - {{kind: limit, name: gpu_full, signal: gpu_memory_used_bytes,
          divisor: gpu_memory_total_bytes, trip: 0.9, clear: 0.8}}
"""


def has(text: str, name: str, *labels: str, value: float) -> bool:
    """Whether the page has a series of `name` with all these labels and this value."""
    return any(
        it.startswith(f"fusewire_{name}{{")
        and all(label in it for label in labels)
        and float(it.rpartition(" ")[2]) == value
        for it in text.splitlines()
    )


def test_the_service_shows_each_gpu_and_lives_through_the_loss_and_return_of_one(
    tmp_path: Path,
) -> None:
    compile_fake(tmp_path, soname=True)
    gpus = FakeGpus(tmp_path / "gpus.txt")
    environ = {"LD_LIBRARY_PATH": str(tmp_path), "FUSEWIRE_FAKE_GPU": str(gpus.path)}
    with engine(CALM) as found:
        (tmp_path / "fusewire.yaml").write_text(CONFIG.format(url=found.url))
        with serving(tmp_path, **environ) as service:

            def page(name: str, *labels: str, value: float) -> bool:
                return has(service.text("/metrics"), name, *labels, value=value)

            zero, one = 'device="0"', 'device="1"'
            until(lambda: page("gpu_memory_used_bytes", zero, value=30.0 * GIB), seconds=10)
            assert page("gpu_memory_used_bytes", one, value=10.0 * GIB)
            assert page("gpu_temperature_celsius", zero, value=71.0)
            assert page("gpu_xid_errors_total", one, value=0.0)
            assert page("verdict_level", 'detector="gpu_full"', value=0.0)

            gpus.set(_1_xids=1, _1_xid=79, _1_lost=1, _0_used=78 * GIB)

            until(lambda: page("finding", 'cause="gpu_lost"', value=1.0), seconds=10)
            assert one not in _series(service.text("/metrics"), "gpu_memory_used_bytes")
            until(lambda: page("gpu_memory_used_bytes", zero, value=78.0 * GIB), seconds=10)
            until(lambda: page("verdict_level", 'detector="gpu_full"', value=2.0), seconds=10)
            assert page("up", 'target="a"', value=1.0)

            gpus.set(_1_lost=0, _0_used=30 * GIB)

            until(lambda: page("gpu_temperature_celsius", one, value=40.0), seconds=10)
            until(lambda: not page("finding", 'cause="gpu_lost"', value=1.0), seconds=10)
            until(lambda: page("verdict_level", 'detector="gpu_full"', value=0.0), seconds=10)
            assert service.stop() == 0
            assert "Traceback" not in service.log


def test_a_driver_that_hangs_holds_up_neither_the_service_nor_its_end(tmp_path: Path) -> None:
    compile_fake(tmp_path, soname=True)
    gpus = FakeGpus(tmp_path / "gpus.txt")
    gpus.set(_0_hang=1)
    environ = {"LD_LIBRARY_PATH": str(tmp_path), "FUSEWIRE_FAKE_GPU": str(gpus.path)}
    with engine(CALM) as found:
        (tmp_path / "fusewire.yaml").write_text(CONFIG.format(url=found.url))
        with serving(tmp_path, **environ) as service:
            until(
                lambda: has(
                    service.text("/metrics"), "finding", 'cause="gpu_driver_hung"', value=1.0
                ),
                seconds=10,
            )
            before = found.scrapes
            until(lambda: found.scrapes > before + 3, seconds=5)

            assert service.stop() == 0


def test_a_machine_without_a_driver_is_told_and_nothing_else_happens(tmp_path: Path) -> None:
    with engine(CALM) as found:
        (tmp_path / "fusewire.yaml").write_text(CONFIG.format(url=found.url))
        compile_fake(tmp_path, soname=True)  # without its file it says: driver not loaded
        with serving(tmp_path, LD_LIBRARY_PATH=str(tmp_path)) as service:
            until(
                lambda: has(
                    service.text("/metrics"), "finding", 'cause="gpu_no_driver"', value=1.0
                ),
                seconds=10,
            )
            text = service.text("/metrics")
            assert 'reason="no driver on this machine",signal="gpu_power_watts"' in text
            assert has(text, "up", 'target="a"', value=1.0)


def _series(text: str, name: str) -> str:
    return "\n".join(it for it in text.splitlines() if it.startswith(f"fusewire_{name}{{"))
