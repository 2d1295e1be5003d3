"""The probe as a plug-in of vLLM: installed by pip, found by its entry point, started once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector.cli.embeds import EMBEDS
from tests.exporters.embed.hosts import WITHOUT_USE, a_host, ask, state, until
from tests.parts import need_module

LOAD_AS_VLLM_DOES = (
    "from importlib.metadata import entry_points; "
    "[it.load()() for it in entry_points(group='vllm.general_plugins')]"
)
TELL = "import fusewire_vllm_probe as p; print(p.default_folder())"


def installed(folder: Path) -> Path:
    """Install the package that `render embed vllm-probe` writes, and return where to."""
    need_module("setuptools", install="pip install setuptools")
    package, place = folder / "package", folder / "site"
    package.mkdir()
    for name, text in EMBEDS["vllm-probe"].texts().items():
        (package / name).write_text(text)
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(place)]
    command = [sys.executable, "-m", "pip", "install", *options, str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.slow
def test_the_package_installs_and_its_entry_point_starts_one_probe_a_process(
    tmp_path: Path,
) -> None:
    place = installed(tmp_path)
    with a_host(tmp_path / "d", place) as one, a_host(tmp_path / "d", place) as two:
        for host in (one, two):
            host.do(LOAD_AS_VLLM_DOES)
            host.do(LOAD_AS_VLLM_DOES)  # vLLM may load its plug-ins more than once
        pages = [host.page() for host in (one, two)]
        sockets = {path.name for path in (tmp_path / "d").iterdir()}

    assert sockets == {f"{host.process.pid}.sock" for host in (one, two)}
    assert [state(page) for page in pages] == [WITHOUT_USE] * 2


@pytest.mark.slow
def test_without_settings_every_process_has_a_socket_in_a_folder_of_its_users(
    tmp_path: Path,
) -> None:
    place = installed(tmp_path)
    with a_host(Path(), place, FUSEWIRE_PROBE_DIR="", TMPDIR=str(tmp_path)) as host:
        host.do(LOAD_AS_VLLM_DOES)
        folder = Path(host.do(TELL).strip())
        path = folder / f"{host.process.pid}.sock"
        until(path.exists)
        page = ask(path)

    assert folder == tmp_path / f"fusewire-probe-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert state(page) == WITHOUT_USE


@pytest.mark.slow
def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    place = installed(tmp_path)
    folder = tmp_path / f"fusewire-probe-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with a_host(Path(), place, FUSEWIRE_PROBE_DIR="", TMPDIR=str(tmp_path)) as host:
        host.do(LOAD_AS_VLLM_DOES)
        host.do("import threading")
        host.do("[it.join(20) for it in threading.enumerate() if it.daemon]")
        errors = host.end()

    assert "allocator probe is off" in errors
    assert "FUSEWIRE_PROBE_DIR" in errors
    assert list(folder.iterdir()) == []


def test_a_machine_without_a_folder_for_temporary_files_still_starts_its_server(
    tmp_path: Path,
) -> None:
    with a_host(tmp_path, FUSEWIRE_PROBE_DIR="") as host:
        host.do("import tempfile")
        host.do("exec('def none():\\n raise FileNotFoundError(2, \"no usable folder\")')")
        host.do("tempfile.gettempdir = none")
        host.do("load('fusewire_vllm_probe').start_in_vllm(); print('started')")
        errors = host.end()

    assert (host.process.returncode, errors) == (0, "")
