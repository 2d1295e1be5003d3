"""The allocator probe inside processes of its own: what it tells, and that it does no harm."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporters.embed.allocator_probe import parse_conf, places
from tests.exporters.embed.hosts import (
    PROBE,
    WITHOUT_USE,
    a_host,
    ask,
    fake_torch,
    state,
    until,
    values,
)

GIB = 2**30


def test_a_server_with_two_devices_is_told_in_full(tmp_path: Path) -> None:
    with a_host(tmp_path / "d", fake_torch(tmp_path / "t")) as host:
        host.do("import torch; load()")
        page = host.page()

    assert state(page) == "cuda"
    assert values(page, "cuda_available") == {"": 1.0}
    assert values(page, "allocated_bytes") == {"0": 10 * GIB, "1": 20 * GIB}
    assert values(page, "reserved_bytes") == {"0": 16 * GIB, "1": 32 * GIB}
    assert values(page, "active_bytes") == {"0": 11 * GIB, "1": 22 * GIB}
    assert values(page, "inactive_split_bytes") == {"0": 3 * GIB, "1": 6 * GIB}
    assert values(page, "requested_bytes") == {"0": 9 * GIB, "1": 18 * GIB}
    assert values(page, "retries_total") == {"0": 5.0, "1": 10.0}
    assert values(page, "ooms_total") == {"0": 1.0, "1": 2.0}
    assert f'pid="{host.process.pid}"' in page
    assert 'torch="2.11.0+cu128",cuda="12.8",hip=""' in page
    assert 0 < values(page, "scrape_seconds")[""] < 1


def test_cuda_is_never_initialised_for_its_sake(tmp_path: Path) -> None:
    with a_host(tmp_path / "d", fake_torch(tmp_path / "t")) as host:
        host.do("import torch; torch.cuda.ready = False; load()")
        page = host.page()
        asked = host.do("print(torch.asked)")

    assert state(page) == "cuda_not_initialized"
    assert values(page, "cuda_available") == {}
    assert asked == "[]\n"


def test_torch_is_never_imported_for_its_sake(tmp_path: Path) -> None:
    with a_host(tmp_path / "d", fake_torch(tmp_path / "t")) as host:
        host.do("load()")
        before = host.page()
        imported = host.do("print('torch' in sys.modules)")
        host.do("import torch")
        after = host.page()

    assert (state(before), imported, state(after)) == ("torch_not_loaded", "False\n", "cuda")


def test_a_torch_that_raises_harms_neither_the_page_nor_the_host(tmp_path: Path) -> None:
    with a_host(tmp_path / "d", fake_torch(tmp_path / "t")) as host:
        host.do("import torch; load(); torch.cuda.devices = [torch.stats(1), 'no figures']")
        page = host.page()
        host.do("del torch.cuda")
        later = host.page()
        errors = host.end()

    assert (state(page), state(later)) == ("failed", "torch_not_loaded")
    assert errors == ""
    assert host.process.returncode == 0


def test_the_settings_of_the_allocator_are_told_with_their_source(tmp_path: Path) -> None:
    conf = 'expandable_segments:True,roundup_power2_divisions:[256:1,512:2],max_split_size_mb:128"'
    with a_host(tmp_path / "d", fake_torch(tmp_path / "t"), PYTORCH_CUDA_ALLOC_CONF=conf) as host:
        host.do("import torch, types; load()")
        host.do("torch._C = types.SimpleNamespace()")
        host.do("torch._C._accelerator_getAllocatorSettings = lambda: 'max_split_size_mb:64'")
        page = host.page()

    (own, told) = [line for line in page.splitlines() if "allocator_conf{" in line]
    assert 'source="PYTORCH_CUDA_ALLOC_CONF"' in own
    assert conf.replace('"', '\\"') in own
    assert 'expandable_segments="true"' in own
    assert 'source="torch",conf="max_split_size_mb:64",expandable_segments=""' in told
    assert values(page, "allocator_conf")  # Prometheus' client can read it


@pytest.mark.parametrize(
    ("conf", "options"),
    [
        ("", {}),
        ("nonsense", {}),
        ("a:1, b : True", {"a": "1", "b": "True"}),
        ("a:[1:2,3:4],b:[x],c:9", {"a": "[1:2,3:4]", "b": "[x]", "c": "9"}),
        ("a:1,a:2,", {"a": "2"}),
    ],
)
def test_a_setting_is_taken_apart(conf: str, options: dict[str, str]) -> None:
    assert parse_conf(conf) == options


def test_devices_have_the_names_that_the_machine_gives_them(tmp_path: Path) -> None:
    torch = fake_torch(tmp_path / "t")
    with a_host(tmp_path / "d", torch, CUDA_VISIBLE_DEVICES="3, GPU-5a") as host:
        host.do("import torch; load()")
        page = host.page()

    assert values(page, "ooms_total") == {"3": 1.0, "GPU-5a": 2.0}


def test_the_largest_free_block_costs_a_snapshot_and_only_where_it_is_wanted(
    tmp_path: Path,
) -> None:
    torch = fake_torch(tmp_path / "t")
    with (
        a_host(tmp_path / "d", torch) as plain,
        a_host(tmp_path / "d", torch, FUSEWIRE_PROBE_SNAPSHOT="1") as close,
    ):
        for host in (plain, close):
            host.do("import torch; load()")
        without = [plain.page() for _ in range(3)][-1]
        first, _, third = (close.page() for _ in range(3))
        counts = [it.do("print(torch.asked.count('memory_snapshot'))") for it in (plain, close)]

    assert values(without, "largest_free_bytes") == values(first, "largest_free_bytes") == {}
    assert values(third, "largest_free_bytes") == {"0": 700.0, "1": 0.0}  # not in a private pool
    assert values(third, "expandable_segments") == {"0": 0.0, "1": 0.0}
    assert values(third, "snapshot_seconds")[""] >= 0
    assert [values(it, "snapshot_enabled")[""] for it in (without, third)] == [0.0, 1.0]
    assert counts == ["0\n", "1\n"]


def test_it_starts_once_in_a_process_whatever_copies_of_it_there_are(tmp_path: Path) -> None:
    with a_host(tmp_path) as host:
        said = host.do("print(load().start(), load('other').start(), load().start())")
        host.page()
        threads = host.do("import threading; print(threading.active_count())")

    assert said == "False False False\n"  # the import started it
    assert [it.name for it in tmp_path.iterdir()] == [f"{host.process.pid}.sock"]
    assert threads == "2\n"


def test_it_can_be_switched_off_and_imported_without_starting(tmp_path: Path) -> None:
    with a_host(tmp_path) as host, a_host(tmp_path, FUSEWIRE_PROBE="0") as off:
        host.do("load('another_name')")
        off.do("load()")
        threads = [it.do("import threading; print(threading.active_count())") for it in (host, off)]

    assert threads == ["1\n", "1\n"]


def test_a_forked_child_has_an_address_of_its_own(tmp_path: Path) -> None:
    with a_host(tmp_path, fake_torch(tmp_path / "t")) as host:
        host.do("import os, time, torch; load()")
        host.page()
        child = int(host.do("p = os.fork(); p or time.sleep(60); print(p)"))
        try:
            path = tmp_path / f"{child}.sock"
            until(path.exists)
            theirs, ours = ask(path), host.page()
        finally:
            os.kill(child, signal.SIGKILL)

    assert f'pid="{child}"' in theirs
    assert f'pid="{host.process.pid}"' in ours
    assert values(theirs, "scrapes_total") == {"": 1.0}


def test_it_does_not_keep_its_host_alive_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with a_host(tmp_path) as host:
        host.do("load()")
        host.page()
        errors = host.end()

    assert (host.process.returncode, errors) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_the_socket_of_a_killed_process_is_taken_away_by_the_next(tmp_path: Path) -> None:
    with a_host(tmp_path) as killed:
        killed.do("load()")
        killed.page()
        killed.process.kill()
        killed.process.wait()
    with a_host(tmp_path) as host:
        left = list(tmp_path.iterdir())
        host.do("load()")
        host.page()
        now = list(tmp_path.iterdir())

    assert left == [killed.socket]
    assert now == [host.socket]


def test_with_port_0_the_port_is_left_in_a_file(tmp_path: Path) -> None:
    with a_host(tmp_path, FUSEWIRE_PROBE_ADDRESS="127.0.0.1:0") as host:
        host.do("load()")
        path = tmp_path / f"{host.process.pid}.port"
        until(path.exists)
        name, _, port = path.read_text().strip().partition(":")
        page = ask((name, int(port)))

    assert name == "127.0.0.1"
    assert state(page) == WITHOUT_USE


def test_who_finds_the_address_taken_waits_and_takes_over(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/one.sock"
    wait = "m = load('m'); m.RETRY_SECONDS = 0.02; m.start()"
    with a_host(tmp_path, FUSEWIRE_PROBE_ADDRESS=address) as second:
        with a_host(tmp_path, FUSEWIRE_PROBE_ADDRESS=address) as first:
            first.do(wait)
            until((tmp_path / "one.sock").exists)
            second.do(wait)
            before = ask(tmp_path / "one.sock")

        def taken() -> bool:
            try:
                return f'pid="{second.process.pid}"' in ask(tmp_path / "one.sock")
            except OSError:
                return False

        until(taken)

    assert f'pid="{first.process.pid}"' in before


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0:9733", "10.0.0.1:1", "9733", "host.example:1", "unix:/proc/no/where"),
        *("127.0.0.1:99999", "127.0.0.1:-1", f"unix:/{'long' * 40}"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_and_nothing_else_happens(
    tmp_path: Path, address: str
) -> None:
    with a_host(tmp_path / "d", FUSEWIRE_PROBE_ADDRESS=address) as host:
        host.do("load()")
        host.do("import threading")
        host.do("[it.join(20) for it in threading.enumerate() if it.daemon]")
        errors = host.end()

    assert errors.startswith("allocator probe is off: ")
    assert host.process.returncode == 0


def test_a_socket_that_cannot_be_bound_is_closed_where_warnings_are_errors(tmp_path: Path) -> None:
    address = f"unix:/{'long' * 40}"
    with a_host(tmp_path / "d", FUSEWIRE_PROBE_ADDRESS=address, flags="-I -W error") as host:
        host.do("load()")
        host.do("import gc, threading")
        host.do("[it.join(20) for it in threading.enumerate() if it.daemon]")
        host.do("gc.collect()")
        errors = host.end()

    assert errors.startswith("allocator probe is off: ")
    assert errors.count("\n") == 1


def test_a_file_that_the_host_opened_in_place_of_the_socket_stays_open(tmp_path: Path) -> None:
    """A daemon closes all it has open; numbers of the probe's are then its own files'."""
    with a_host(tmp_path / "d", FUSEWIRE_PROBE_ADDRESS="127.0.0.1:0") as host:
        host.do("import os; load()")
        path = tmp_path / "d" / f"{host.process.pid}.port"
        until(path.exists)
        name, _, port = path.read_text().strip().partition(":")
        host.do(f"os.closerange(3, 64); log = open({str(tmp_path / 'log')!r}, 'w'); log.fileno()")
        ask((name, int(port)))  # which the old socket still answers
        host.do("import time; time.sleep(0.3)")
        host.do("p = os.fork(); p or os._exit(log.write('child') and log.close() or 0)")
        child = host.do("print(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))")
        host.do("_ = log.write('parent'), log.close()")

    assert child == "0\n"
    assert (tmp_path / "log").read_text() == "childparent"


def test_the_default_address_is_on_the_loopback() -> None:
    assert places({}) == (None, ("127.0.0.1", 9733))
    assert places({"FUSEWIRE_PROBE_ADDRESS": "[::1]:80"}) == (None, ("::1", 80))
    assert places({"FUSEWIRE_PROBE_ADDRESS": "unix:///a/b"}) == (None, Path("/a/b"))


def test_a_client_that_asks_nothing_or_nonsense_is_left_behind(tmp_path: Path) -> None:
    with a_host(tmp_path) as host:
        host.do("m = load('m'); m.REQUEST_SECONDS = 0.05; m.start()")
        host.page()
        silent = ask(host.socket, b"GET /met")
        endless = ask(host.socket, b"GET /" + b"x" * 8192)
        elsewhere = ask(host.socket, b"GET /secrets HTTP/1.1\r\n\r\n")
        page = host.page()

    assert (silent, endless, elsewhere) == ("", "", "see /metrics\n")
    assert values(page, "scrapes_total") == {"": 2.0}


BARE = """
import sys
assert not any("main" in path or "site-packages" in path for path in sys.path), sys.path
sys.path.insert(0, sys.argv[1])
import fusewire_allocator_probe, os, pathlib, time
path = pathlib.Path(os.environ["FUSEWIRE_PROBE_DIR"], f"{os.getpid()}.sock")
while not path.exists():
    time.sleep(0.005)
import socket
caller = socket.socket(socket.AF_UNIX)
caller.connect(str(path))
caller.sendall(b"GET /metrics HTTP/1.1\\r\\n\\r\\n")
print("torch_missing" in caller.makefile().read())
"""


def test_it_runs_alone_without_fusewire_and_without_packages(tmp_path: Path) -> None:
    shutil.copy(PROBE, tmp_path / "fusewire_allocator_probe.py")
    ast.parse(PROBE.read_text(), feature_version=(3, 9))

    for python in filter(None, [sys.executable, old_python()]):
        done = subprocess.run(
            [python, "-I", "-S", "-c", BARE, str(tmp_path)],
            capture_output=True,
            text=True,
            env={"FUSEWIRE_PROBE_DIR": str(tmp_path / "d")},
            cwd=tmp_path,
            check=False,
        )
        assert done.stdout == "True\n", done.stderr
        assert done.stderr == ""


def old_python() -> str | None:
    """Return a Python 3.9 that runs, if this machine has one."""
    found = shutil.which("python3.9")
    if found is None:
        return None
    where = "import sys; print(sys.executable)"  # what a wrapper on PATH leads to
    done = subprocess.run([found, "-c", where], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
