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
        known = self.headers.get("authorization") == "Bearer sesame"
        if self.path == "/guarded" and known:
            page = PAGES["/metrics"]
        body = page.read_bytes() if page else b""
        self.send_response(200 if page else 401 if self.path == "/guarded" else 404)
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


def test_a_page_that_wants_credentials_is_asked_with_them_and_the_draft_says_where_they_are(
    engine: str, tmp_path: Path
) -> None:
    token, file = tmp_path / "token", tmp_path / "fusewire.yaml"
    token.write_text("sesame\n")
    guarded = f"{engine}/guarded"

    without = CliRunner().invoke(fusewire, ["doctor", guarded])
    given = ["--bearer-token-file", str(token)]
    asked = CliRunner().invoke(fusewire, ["doctor", guarded, *given])
    drafted = CliRunner().invoke(fusewire, ["init", guarded, *given, "-o", str(file)])

    assert (without.exit_code, asked.exit_code, drafted.exit_code) == (1, 0, 0), asked.output
    assert "wants credentials" in without.output
    (target,) = load(file, {}).tiers["tiny"].targets
    assert target.bearer_token_file == token
    assert "sesame" not in asked.output + drafted.output + file.read_text()


def test_credentials_are_not_sent_unencrypted_to_another_machine(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame")
    given = ["--bearer-token-file", str(tmp_path / "token"), "--timeout", "1s"]

    ran = CliRunner().invoke(fusewire, ["doctor", "http://192.0.2.1:8000", *given])

    assert ran.exit_code == 1
    assert "not sent over plain http" in ran.output


def test_a_manifest_without_findings_says_what_was_looked_at() -> None:
    sound = str(FIXTURES / "manifests" / "sound.yaml")

    ran = CliRunner().invoke(fusewire, ["doctor", "--manifest", sound])

    assert ran.exit_code == 0
    assert ran.output == "manifests: 1 workloads, 1 engines recognised; 0 findings\n"
