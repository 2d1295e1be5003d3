"""A server with certificates of its own: trusted by `ca_file`, or told in words why not."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from collector.sources.fetch import FetchError
from collector.sources.stored.client import StoredClient
from collector.sources.stored.settings import PrometheusConfig
from tests.parts import need_program

pytestmark = pytest.mark.anyio

EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a certificate for 127.0.0.1 that only itself vouches for; its key lies beside it."""
    openssl = need_program("openssl", install="apt-get install openssl")
    path = tmp_path / "own.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=fusewire-test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(tmp_path / "own.key"), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@asynccontextmanager
async def answering(certificate: Path) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(EMPTY)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + EMPTY)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        server.close()


async def asked(url: str, **settings: object) -> str:
    """Return what is wrong with an answer, empty if nothing is."""
    config = PrometheusConfig.model_validate({"url": url, **settings})
    async with httpx2.AsyncClient(trust_env=False) as shared:
        client = StoredClient(config, shared)
        try:
            await client.query("up", monotonic())
        except FetchError as error:
            return str(error)
        finally:
            await client.close()
    return ""


async def test_its_own_certificates_are_trusted_where_they_are_named(certificate: Path) -> None:
    async with answering(certificate) as url:
        unknown = await asked(url)
        named = await asked(url, ca_file=certificate)
        unchecked = await asked(url, verify=False)

    assert "certificate" in unknown.lower()
    assert named == ""
    assert unchecked == ""


async def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")

    assert f"ca_file {path}: cannot be used" in await asked("https://127.0.0.1:1", ca_file=path)
