"""The kubelet's page, served for real: which series count, and what happens between pages."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.sources.host.cadvisor import OFFERS, CadvisorConfig
from detectors.records import Absence, Reading
from detectors.remarks import Noticed
from tests.collector.sources.looked import (
    FIXTURES,
    Clock,
    assert_all_offered_are_told,
    codes,
    looking,
)
from tests.collector.sources.servers import Answer, serving, text
from tests.parts import need_program

pytestmark = pytest.mark.anyio
PAGE = (FIXTURES / "kube/cadvisor.txt").read_bytes()
OLD = (FIXTURES / "kube/cadvisor-1.15-labels.txt").read_bytes()


async def read_pages(*pages: bytes, **settings: object) -> list[Reading]:
    """Serve one page after the other, and read each."""
    waiting = list(pages)
    clock = Clock()

    async def answer(writer: asyncio.StreamWriter) -> None:
        await text(waiting.pop(0))(writer)

    async with serving(answer) as server:
        wanted = {"namespace": "serving", "pod": "tgi-0", **settings}
        config = CadvisorConfig.model_validate({"url": f"{server.url}/metrics/cadvisor", **wanted})
        async with looking(config, clock) as source:
            readings = []
            for _ in pages:
                readings.append(await source.read())
                clock.seconds += 15
            return readings


async def test_the_container_that_lives_now_is_read_not_the_pods_total_nor_an_ended_life() -> None:
    (reading,) = await read_pages(PAGE, container="tgi")

    assert reading.values["memory_working_set_bytes"] == 3.0e9
    assert reading.values["memory_limit_bytes"] == 4294967296
    assert reading.values["memory_rss_bytes"] == 2.5e9
    assert reading.values["memory_swap_bytes"] == 0.0
    assert reading.values["memory_ooms_total"] == 1.0
    assert reading.findings == ()
    assert_all_offered_are_told(reading, OFFERS)


async def test_of_several_containers_the_fullest_is_told_and_one_can_be_named() -> None:
    (fullest,) = await read_pages(PAGE)
    (named,) = await read_pages(PAGE, container="proxy")

    assert fullest.values["memory_working_set_bytes"] == 3.0e9
    assert named.values["memory_working_set_bytes"] == 1.5e8
    assert named.absent["memory_limit_bytes"] is Absence.UNUSABLE  # a limit of 0 is none
    assert codes(named) == ["no_memory_limit"]
    assert named.absent["memory_ooms_total"] is Absence.NO_FAMILY  # missing on some runtimes


async def test_labels_of_old_kubernetes_and_its_huge_number_for_no_limit_are_known() -> None:
    (reading,) = await read_pages(OLD, pod="vllm-*")

    assert reading.values["memory_working_set_bytes"] == 2.1e9
    assert reading.absent["memory_limit_bytes"] is Absence.UNUSABLE


async def test_a_new_start_is_a_restart_and_a_kill_says_why() -> None:
    killed = PAGE.replace(b"kubepods/burstable/pod5e1/aaa", b"kubepods/burstable/pod5e1/new")
    killed = killed.replace(b"1.7643995e+09", b"1.7643999e+09")
    killed = killed.replace(b'pod="tgi-0"} 1 ', b'pod="tgi-0"} 2 ')

    before, after, again = await read_pages(PAGE, killed, killed, container="tgi")

    assert before.values["restarts_total"] == 0.0
    assert after.restarted
    assert after.noticed == (Noticed("restart", "", "OOMKilled"),)
    assert after.parts["restarts_total"] == {"OOMKilled": 1.0}
    assert after.values["memory_ooms_total"] == 2.0
    assert codes(after) == ["oom_killed"]
    assert again.values["restarts_total"] == 1.0
    assert again.noticed == ()


async def test_a_restart_of_the_kubelet_changes_no_counter() -> None:
    restarted = PAGE.replace(b"seconds 1.7600000e+09", b"seconds 1.7700000e+09")

    before, after = await read_pages(PAGE, restarted, container="tgi")

    assert after.values["memory_ooms_total"] == before.values["memory_ooms_total"] == 1.0
    assert not after.restarted


async def test_a_pod_that_is_not_on_the_page_is_a_finding() -> None:
    (reading,) = await read_pages(PAGE, pod="vllm-*")

    assert reading.up
    assert codes(reading) == ["no_such_container"]
    assert set(reading.absent.values()) == {Absence.NO_SAMPLE}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (text(b"", status="403 Forbidden"), "403"),
        (text(b"<html></html>"), "none of the families"),
        (text(b"up 1\n"), "none of the families"),
        (text(PAGE, length=len(PAGE) + 9), "broke"),
    ],
    ids=["refused", "HTML", "another exporter", "cut"],
)
async def test_trouble_of_the_page_is_in_the_reading(answer: Answer, words: str) -> None:
    async with serving(answer) as server:
        config = CadvisorConfig(url=server.url, namespace="serving", pod="tgi-0")
        async with looking(config) as source:
            reading = await source.read()

    assert words in reading.problem
    assert_all_offered_are_told(reading, OFFERS)


async def test_the_token_is_read_anew_at_each_scrape_and_never_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with serving(text(PAGE)) as server:
        config = CadvisorConfig(
            url=server.url, namespace="serving", pod="tgi-0", bearer_token_file=token
        )
        async with looking(config) as source:
            await source.read()
            token.write_text("second\n")
            await source.read()
            token.write_text("two\nlines\n")
            bad = await source.read()
            token.unlink()
            missing = await source.read()

    sent = [it for request in server.requests for it in request.split(b"\r\n") if b"earer" in it]
    assert [line.split(b": ")[1] for line in sent] == [b"Bearer first", b"Bearer second"]
    assert "expected a token" in bad.problem
    assert "two" not in bad.problem
    assert "No such file" in missing.problem


async def test_the_token_does_not_go_over_plain_http_to_another_machine(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    config = CadvisorConfig(
        url="http://192.0.2.1:10255", namespace="serving", pod="tgi-0", bearer_token_file=token
    )
    async with looking(config) as source:
        reading = await source.read()

    assert "insecure_http" in reading.problem


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    openssl = need_program("openssl", install="apt-get install openssl")
    path, key = tmp_path / "server.pem", tmp_path / "key.pem"
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=kubelet"
    name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    subprocess.run([openssl, *kind.split(), *name], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


async def test_a_server_is_trusted_by_its_authority_only(certificate: Path, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    settings = {"namespace": "serving", "pod": "tgi-0", "container": "tgi"}
    async with serving(text(PAGE), context) as server:
        url = server.url.replace("http:", "https:")
        trusting = CadvisorConfig.model_validate({"url": url, "ca_file": certificate, **settings})
        async with looking(trusting) as source:
            good = await source.read()
        async with looking(CadvisorConfig.model_validate({"url": url, **settings})) as source:
            unknown = await source.read()
        no_file = trusting.model_copy(update={"ca_file": tmp_path / "no.pem"})
        async with looking(no_file) as source:
            missing = await source.read()

    assert good.values["memory_working_set_bytes"] == 3.0e9
    assert "cannot connect" in unknown.problem
    assert "ca_file" in missing.problem


@pytest.mark.parametrize(
    "settings", [{"namespace": 'a"b'}, {"namespace": ""}, {"pod": ""}, {"pod": "a b"}]
)
def test_names_that_no_cluster_has_are_refused(settings: dict[str, str]) -> None:
    good = {"url": "http://127.0.0.1:1", "namespace": "serving", "pod": "tgi-0"}

    with pytest.raises(ValidationError):
        CadvisorConfig.model_validate({**good, **settings})
