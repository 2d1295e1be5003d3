"""The fleet's HTTPS connections against real TLS servers, and the rest of HTTP/1 they may meet."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from collector.sources.connections import KeptConnections
from collector.sources.fetch import FetchError, FetchLimits, Outcome, fetch
from tests.parts import need_program

pytestmark = pytest.mark.anyio
PAGE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nfir\r\n2\r\nst\r\n0\r\n\r\n"


@dataclass
class Server:
    """A server that writes one answer, byte for byte, to every request."""

    answers: Sequence[bytes] = (PAGE,)
    close_after: int = 1_000_000
    answers_at_once: bool = False  # whatever the client says
    connections: int = 0
    names: list[str | None] = field(default_factory=list)
    port: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        for _ in range(self.close_after):
            try:
                blind = self.answers_at_once
                await (reader.read(65536) if blind else reader.readuntil(b"\r\n\r\n"))
                for piece in self.answers:
                    writer.write(piece)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                break
        writer.close()


@dataclass(frozen=True)
class Certificate:
    """A certificate that signed itself, and its key."""

    certificate: Path
    key: Path

    def serving(self, server: Server) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)

        def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
            server.names.append(name)

        context.sni_callback = note
        return context

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)


def made(folder: Path, *names: str) -> Certificate:
    openssl = need_program("openssl", install="apt-get install openssl")
    found = Certificate(folder / "certificate.pem", folder / "key.pem")
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    alternatives = ["-addext", "subjectAltName=" + ",".join(names)]
    files = ["-keyout", str(found.key), "-out", str(found.certificate)]
    command = [openssl, *kind.split(), *alternatives, *files]
    subprocess.run(command, check=True, capture_output=True)
    return found


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return made(tmp_path_factory.mktemp("tls"), "DNS:localhost", "IP:127.0.0.1")


@asynccontextmanager
async def served(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    listening.close()
    for writer in server.writers:
        writer.transport.abort()
    await asyncio.sleep(0.01)


def client(trusted: ssl.SSLContext | None = None) -> httpx2.AsyncClient:
    kept = KeptConnections(monotonic=time.monotonic, most=10, idle_seconds=60.0, trusted=trusted)
    return httpx2.AsyncClient(transport=kept, timeout=5.0)


async def test_requests_over_tls_share_a_connection_that_named_its_host(
    certificate: Certificate,
) -> None:
    server = Server()

    async with (
        served(server, certificate.serving(server)),
        client(certificate.trusted()) as http,
    ):
        answers = [await http.get(f"https://localhost:{server.port}/metrics") for _ in range(3)]

    assert [answer.text for answer in answers] == ["page"] * 3
    assert server.connections == 1
    assert server.names == ["localhost"]


async def test_an_address_is_checked_against_the_addresses_of_the_certificate(
    certificate: Certificate, tmp_path: Path
) -> None:
    good, other = Server(), Server()
    another = made(tmp_path, "DNS:localhost", "IP:127.0.0.9")

    async with (
        served(good, certificate.serving(good)),
        served(other, another.serving(other)),
        client(certificate.trusted()) as http,
        client(another.trusted()) as misled,
    ):
        answer = await http.get(f"https://127.0.0.1:{good.port}")
        with pytest.raises(httpx2.ConnectError, match=r"certificate is refused: IP address mism"):
            await misled.get(f"https://127.0.0.1:{other.port}")

    assert answer.text == "page"


async def test_a_certificate_of_nobody_trusted_is_told_in_words(certificate: Certificate) -> None:
    server = Server()

    async with served(server, certificate.serving(server)), client() as http:
        with pytest.raises(FetchError) as caught:
            await fetch(http, f"https://localhost:{server.port}", {}, FetchLimits())

    assert caught.value.outcome is Outcome.CONNECTION
    assert "its certificate is refused: self-signed certificate" in str(caught.value)


async def test_a_server_without_tls_is_told_in_words() -> None:
    server = Server(answers_at_once=True)

    async with served(server), client() as http:
        with pytest.raises(httpx2.ConnectError, match=r"no TLS with it: .*; is http:// meant\?"):
            await http.get(f"https://127.0.0.1:{server.port}")


async def test_a_tls_connection_that_its_server_closed_is_not_used_again(
    certificate: Certificate,
) -> None:
    server = Server(close_after=1)

    async with (
        served(server, certificate.serving(server)),
        client(certificate.trusted()) as http,
    ):
        url = f"https://localhost:{server.port}"
        first = await http.get(url)
        await asyncio.sleep(0.02)
        second = await http.get(url)
        third = await http.get(url)  # at once: the server's end may not have come yet

    assert (first.text, second.text, third.text) == ("page", "page", "page")
    assert server.connections == 3


async def test_a_chunked_page_in_small_pieces_comes_whole_over_tls(
    certificate: Certificate,
) -> None:
    server = Server(answers=[CHUNKED[i : i + 7] for i in range(0, len(CHUNKED), 7)])

    async with (
        served(server, certificate.serving(server)),
        client(certificate.trusted()) as http,
    ):
        answers = [(await http.get(f"https://localhost:{server.port}")).text for _ in range(2)]

    assert answers == ["first", "first"]
    assert server.connections == 1


async def test_a_large_page_over_tls_is_not_cut(certificate: Certificate) -> None:
    page = b"metric 1\n" * 200_000
    server = Server(answers=[b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page), page])

    async with (
        served(server, certificate.serving(server)),
        client(certificate.trusted()) as http,
    ):
        found = await fetch(http, f"https://localhost:{server.port}", {}, FetchLimits())

    assert found.body == page
    assert not found.cut


async def test_an_answer_of_http_1_0_ends_with_its_connection() -> None:
    async with (
        served(Server(answers=[b"HTTP/1.0 200 OK\r\n\r\n", b"page"], close_after=1)) as server,
        client() as http,
    ):
        answers = [(await http.get(f"http://127.0.0.1:{server.port}")).text for _ in range(2)]

    assert answers == ["page", "page"]
    assert server.connections == 2


@pytest.mark.parametrize("before", [b"100 Continue", b"103 Early Hints\r\nlink: </style>"])
async def test_what_is_said_before_the_answer_is_passed_over(before: bytes) -> None:
    answers = [b"HTTP/1.1 " + before + b"\r\n\r\n", PAGE]

    async with served(Server(answers=answers)) as server, client() as http:
        found = [await http.get(f"http://127.0.0.1:{server.port}") for _ in range(2)]

    assert [(answer.status_code, answer.text) for answer in found] == [(200, "page")] * 2
    assert server.connections == 1


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async with served(Server()) as server, client() as http:
        answer = await http.get(f"http://127.0.0.1:{server.port}")

    assert answer.text == "page"
