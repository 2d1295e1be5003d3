"""`fusewire doctor` and `fusewire init` as they are typed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.cli.root import fusewire
from collector.config import load

FIXTURES = Path(__file__).parents[2] / "fixtures"


PAGES = {
    "/metrics": FIXTURES / "metrics" / "vllm-0.32.0-load.txt",
    "/gpus/metrics": FIXTURES / "gpu" / "pages" / "dcgm-netdata-testdata.txt",
    "/milvus/metrics": FIXTURES / "neighbours" / "milvus-2.5-reconstructed.txt",
}


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path)
        body = page.read_bytes() if page else b""
        self.send_response(200 if page else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing."""


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_well_engine_is_told_in_a_line_and_exits_0(engine: str) -> None:
    ran = CliRunner().invoke(fusewire, ["doctor", engine, "--all"])

    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith(f"{engine}: vllm ")
    assert "there: signal=kv_cache_usage_ratio" in ran.output
    assert "missing: signal=request_slots" in ran.output


def test_json_holds_pages_and_manifests(engine: str) -> None:
    manifest = str(FIXTURES / "manifests" / "risky.yaml")

    ran = CliRunner().invoke(fusewire, ["doctor", engine, "--manifest", manifest, "--json"])

    told = json.loads(ran.output)
    assert ran.exit_code == 0
    assert [page["engine"] for page in told["pages"]] == ["vllm"]
    assert len(told["manifests"]) == 13


def test_an_engine_that_cannot_be_read_exits_1(engine: str) -> None:
    ran = CliRunner().invoke(fusewire, ["doctor", engine, "http://127.0.0.1:9"])

    assert ran.exit_code == 1
    assert "http://127.0.0.1:9: cannot be read: cannot connect" in ran.output


@pytest.mark.slow
def test_a_page_that_is_no_engines_says_what_it_is_and_how_to_add_it(engine: str) -> None:
    url = f"{engine}/gpus/metrics"

    ran = CliRunner().invoke(fusewire, ["doctor", url, "--all"])
    told = json.loads(CliRunner().invoke(fusewire, ["doctor", url, "--json"]).output)["pages"][0]

    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith(f"{url}: dcgm; 3 of 8 signals")
    assert f'configure: sources: [{{kind: dcgm, url: "{url}"}}]' in ran.output
    assert "there: signal=gpu_memory_used_bytes" in ran.output
    assert "missing: signal=gpu_power_watts" in ran.output
    assert (told["kind"], told["engine"], told["well"]) == ("dcgm", "", True)
    assert told["configure"] == f'sources: [{{kind: dcgm, url: "{url}"}}]'


@pytest.mark.slow
def test_init_puts_gpus_and_a_vector_store_where_they_belong(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "fusewire.yaml"
    urls = [engine, f"{engine}/gpus/metrics", f"{engine}/milvus/metrics"]

    ran = CliRunner().invoke(fusewire, ["init", *urls, "-o", str(file)])

    assert ran.exit_code == 0, ran.output
    (tier,) = load(file, {}).tiers.values()
    assert [it.kind for it in tier.targets[0].sources] == ["dcgm"]
    assert list(tier.neighbours) == ["milvus"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to look at"),
        (["127.0.0.1:8000"], "is not an http or https URL"),
        (["--manifest", "nowhere.yaml"], "cannot be read"),
    ],
    ids=["nothing", "no url", "no file"],
)
def test_what_cannot_be_done_exits_2_and_says_what_to_do(arguments: list[str], words: str) -> None:
    ran = CliRunner().invoke(fusewire, ["doctor", *arguments])

    assert ran.exit_code == 2
    assert words in ran.output


def test_init_writes_a_configuration_that_loads_and_never_over_another(
    engine: str, tmp_path: Path
) -> None:
    file = tmp_path / "fusewire.yaml"

    first = CliRunner().invoke(fusewire, ["init", engine, "--tier", "chat", "-o", str(file)])
    again = CliRunner().invoke(fusewire, ["init", engine, "-o", str(file)])
    forced = CliRunner().invoke(fusewire, ["init", engine, "-o", str(file), "--force"])

    assert (first.exit_code, again.exit_code, forced.exit_code) == (0, 2, 0), first.output
    assert "add --force" in again.output
    assert list(load(file, {}).tiers) == ["tiny"]


def test_init_writes_what_it_could_not_read_too_and_exits_1(tmp_path: Path) -> None:
    file = tmp_path / "fusewire.yaml"

    ran = CliRunner().invoke(fusewire, ["init", "http://127.0.0.1:9", "-o", str(file)])

    assert ran.exit_code == 1
    assert "cannot connect" in ran.output
    assert str(load(file, {}).tiers["chat"].targets[0].url) == "http://127.0.0.1:9"
