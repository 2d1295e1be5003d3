"""`fusewire doctor` and `fusewire init`: look at a tier before, or without, running the service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypedDict, Unpack

import click
import httpx2
from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

from collector.cli.options import CommandT, Duration, json_option
from collector.cli.output import FINDING, TROUBLE, fail, show_json, show_table, utc_now, write_file
from collector.doctor.draft import draft
from collector.doctor.examine import Examination, Instruments, SignalReport, examine
from collector.doctor.manifest import Manifest, ManifestError, read_manifests
from collector.doctor.manifest_checks import manifest_findings
from collector.sources.credentials import CredentialFiles
from collector.values import base_url
from detectors.remarks import Finding

_FILES: Final[tuple[Literal["bearer_token_file", "headers_file"], ...]] = (
    "bearer_token_file",
    "headers_file",
)
_STRICT = ConfigDict(frozen=True, extra="forbid")


class SignalOut(BaseModel):
    """One signal of a page."""

    model_config = _STRICT

    signal: str
    value: float | None
    unit: str
    fed_by: str
    needed: bool
    why: str
    remedy: str


class FindingOut(BaseModel):
    """Something that a person should know."""

    model_config = _STRICT

    code: str
    signal: str
    text: str


class PageOut(BaseModel):
    """What one address turned out to be; `configure` is the YAML that adds what is no engine."""

    model_config = _STRICT

    url: str
    kind: str
    configure: str
    engine: str
    version: str
    model: str
    problem: str
    well: bool
    scrape_seconds: float
    skew_seconds: float | None
    signals: list[SignalOut]
    findings: list[FindingOut]


class DoctorOut(BaseModel):
    """Everything that was looked at."""

    model_config = _STRICT

    pages: list[PageOut]
    manifests: list[FindingOut]


class Asked(TypedDict):
    """What is sent to pages that want to know who asks."""

    bearer_token_file: Path | None
    headers_file: Path | None
    insecure_http: bool


def _credential_options(command: CommandT) -> CommandT:
    """Add the options of `Asked`."""
    token = click.option(
        "--bearer-token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File with a bearer token that every URL is asked with.",
    )
    headers = click.option(
        "--headers-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File with headers (`Name: value`) that every URL is asked with.",
    )
    insecure = click.option(
        "--insecure-http", is_flag=True, help="Send them over plain http to other machines, too."
    )
    return token(headers(insecure(command)))


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kubernetes YAML to look at, rendered; may be given several times.",
)
@click.option("--timeout", type=Duration(), default="15s", show_default=True, help="Longest read.")
@click.option("--all", "every", is_flag=True, help="List signals that are there, too.")
@_credential_options
@json_option
def doctor(
    urls: tuple[str, ...],
    manifests: tuple[Path, ...],
    timeout: float,
    *,
    every: bool,
    as_json: bool,
    **asked: Unpack[Asked],
) -> None:
    """Say what each URL's page is, which signals it has, what is missing and why.

    Each page is read twice, a second apart. Exit code 1 if a page cannot be read or lacks a signal
    that detectors need; findings alone do not change it.
    """
    if not urls and not manifests:
        fail("nothing to look at; name a URL (http://127.0.0.1:8000) or --manifest FILE")
    pages = asyncio.run(_examined(urls, timeout, asked))
    manifest = _read(manifests)
    findings = manifest_findings(manifest)
    if as_json:
        show_json(DoctorOut(pages=[_page_out(it) for it in pages], manifests=_found_out(findings)))
    else:
        for page in pages:
            _show(page, every=every)
        if manifests:
            click.echo(f"manifests: {_counted(manifest)}; {len(findings)} findings")
        _show_findings("manifest", findings)
    if not all(page.well for page in pages):
        raise click.exceptions.Exit(FINDING)


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--tier", default="", help="Name of the one tier; by default a tier a model.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default="fusewire.yaml",
    show_default=True,
    help="Where to write; `-` for standard output.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--timeout", type=Duration(), default="15s", show_default=True, help="Longest read.")
@_credential_options
def init(
    urls: tuple[str, ...],
    tier: str,
    output: Path,
    timeout: float,
    *,
    force: bool,
    **asked: Unpack[Asked],
) -> None:
    """Write a first configuration for the engines at the URLs, and for what stands beside them.

    A URL that cannot be read, or lacks a signal that detectors need, is written all the same, with
    a comment, and the exit code is 1.
    """
    printed = str(output) == "-"
    if not printed and output.exists() and not force:
        fail(f"{output} is there already; name another place with --output, or add --force")
    pages = asyncio.run(_examined(urls, timeout, asked))
    text = draft(pages, tier=tier, keys=_keys(asked))
    if printed:
        click.echo(text, nl=False)
    else:
        write_file(output, text)
    for page in pages:
        if not page.well:
            problem = page.problem or "a signal that detectors need is missing"
            click.echo(
                f"fusewire: {page.url}: {problem}; see 'fusewire doctor {page.url}'", err=True
            )
    if not all(page.well for page in pages):
        raise click.exceptions.Exit(FINDING)


def _keys(asked: Asked) -> dict[str, str | bool]:
    """Return what a target's configuration says of the credentials that were used."""
    keys: dict[str, str | bool] = {
        key: str(path.absolute()) for key in _FILES if (path := asked[key]) is not None
    }
    if keys and asked["insecure_http"]:
        keys["insecure_http"] = True
    return keys


async def _examined(urls: Sequence[str], timeout_seconds: float, asked: Asked) -> list[Examination]:
    for url in urls:
        try:
            base_url(url)
        except PydanticCustomError:
            fail(f"{url!r} is not an http or https URL; write for example http://127.0.0.1:8000")
    async with httpx2.AsyncClient(trust_env=False) as client:
        tools = Instruments(
            client,
            utc_now,
            time.monotonic,
            timeout_seconds=timeout_seconds,
            files=CredentialFiles(asked["headers_file"], asked["bearer_token_file"]),
            insecure_http=asked["insecure_http"],
        )
        return list(await asyncio.gather(*(examine(url, tools) for url in urls)))


def _counted(manifest: Manifest) -> str:
    """Say how much was looked at, so that silence is not taken for health."""
    workloads = manifest.workloads
    engines = sum(bool(it.engine) for load in workloads for it in load.containers)
    return f"{len(workloads)} workloads, {engines} engines recognised"


def _read(paths: Sequence[Path]) -> Manifest:
    try:
        return read_manifests(paths)
    except ManifestError as error:
        fail(str(error), TROUBLE)


def _show(page: Examination, *, every: bool) -> None:
    if page.problem:
        click.echo(f"{page.url}: cannot be read: {page.problem}")
        return
    about = " ".join(filter(None, (page.engine or _kind(page) or "no engine", page.version)))
    there = sum(not it.missing for it in page.signals)
    click.echo(
        f"{page.url}: {about}{f', model {page.model}' if page.model else ''}; {there} of "
        f"{len(page.signals)} signals, read in {page.scrape_seconds:.3f} s"
    )
    if every:
        rows = [
            [it.signal, f"{it.value:g} {it.unit}".strip(), it.fed_by]
            for it in page.signals
            if it.value is not None
        ]
        show_table("there", ("signal", "value", "fed by"), rows)
    if page.addition is not None:
        click.echo(f"configure: {page.addition.line}")
    lacking = [_lacking(it) for it in page.signals if it.missing]
    show_table("missing", ("signal", "needed", "why", "what to do"), lacking)
    _show_findings("finding", page.findings)


def _kind(page: Examination) -> str:
    """Return the kind of source that reads a page; empty if none does."""
    if page.addition is not None:
        return page.addition.kind
    return "engine" if page.engine else ""


def _lacking(report: SignalReport) -> list[str]:
    return [report.signal, "needed" if report.needed else "", report.why, report.remedy]


def _show_findings(title: str, findings: Sequence[Finding]) -> None:
    if findings:
        rows = [[it.code, it.text] for it in findings]
        show_table(title, ("code", "what"), rows)


def _page_out(page: Examination) -> PageOut:
    return PageOut(
        url=page.url,
        kind=_kind(page),
        configure=page.addition.line if page.addition else "",
        engine=page.engine,
        version=page.version,
        model=page.model,
        problem=page.problem,
        well=page.well,
        scrape_seconds=page.scrape_seconds,
        skew_seconds=page.skew_seconds,
        signals=[
            SignalOut(
                signal=it.signal,
                value=it.value,
                unit=it.unit,
                fed_by=it.fed_by,
                needed=it.needed,
                why=it.why,
                remedy=it.remedy,
            )
            for it in page.signals
        ],
        findings=_found_out(page.findings),
    )


def _found_out(findings: Sequence[Finding]) -> list[FindingOut]:
    return [FindingOut(code=it.code, signal=it.signal, text=it.text) for it in findings]
