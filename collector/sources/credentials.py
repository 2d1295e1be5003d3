"""What is sent along with a read to be let in: kept in files, read again when they change.

Nothing of a file's content is ever part of a message; the files are named, their words are not.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from collector.sources.fetch import FetchError, Outcome

MAX_FILE_BYTES: Final = 65_536
MAX_HEADERS: Final = 32
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e]{1,8192}")
_RESERVED: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length"}
    | {"content-type", "cookie", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """Where credentials are: `headers` has lines `Name: value`, `basic_auth` one `user:password`.

    Of `bearer_token` and `basic_auth` at most one is given.
    """

    headers: Path | None = None
    bearer_token: Path | None = None
    basic_auth: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(it for it in (self.headers, self.bearer_token, self.basic_auth) if it)

    def __bool__(self) -> bool:
        return bool(self.paths)


class FileHeaders(Mapping[str, str]):
    """Headers whose values are in files: each use sees what the files hold by then.

    A file is read when its inode, size or time has changed. A use raises `FetchError` while a file
    cannot be read or has nothing usable in it, so that the read at hand fails with the reason.
    """

    def __init__(
        self, files: CredentialFiles, plain: Mapping[str, str] | None = None, *, refusal: str = ""
    ) -> None:
        """Make the mapping; no file is opened.

        Args:
            files: Where the credentials are.
            plain: Headers that are no secret and are always sent.
            refusal: Why nothing may be sent at all; empty if it may.
        """
        self._files = files
        self._plain = dict(plain or {})
        self._refusal = refusal
        self._stamp: _Stamp | None = None
        self._held: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._present()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._present())

    def __len__(self) -> int:
        return len(self._present())

    def __repr__(self) -> str:
        return f"FileHeaders({', '.join(map(str, self._files.paths))})"

    def _present(self) -> Mapping[str, str]:
        if self._refusal:
            raise FetchError(Outcome.CREDENTIALS, self._refusal)
        try:
            stamp = tuple(map(_stamp, self._files.paths))
            if stamp != self._stamp:
                self._held = {**self._plain, **read_headers(self._files)}
                self._stamp = stamp
        except ValueError as error:
            self._stamp = None
            raise FetchError(Outcome.CREDENTIALS, f"no credentials: {error}") from error
        return self._held


def headers_for(
    url: str,
    files: CredentialFiles,
    *,
    insecure_http: bool,
    plain: Mapping[str, str] | None = None,
) -> FileHeaders:
    """Return the headers for requests to `url`; credentials never go where they can be read."""
    refusal = ""
    if files and not insecure_http and may_leak(url):
        refusal = (
            "its credentials are not sent over plain http to another machine; use https, or set "
            "'insecure_http: true' on a trusted network"
        )
    return FileHeaders(files, plain, refusal=refusal)


def read_headers(files: CredentialFiles) -> dict[str, str]:
    """Return the headers that the files hold.

    Raises:
        ValueError: If a file cannot be read or used; the text names the file, never its content.
    """
    found: dict[str, str] = {}
    if files.headers is not None:
        found |= header_lines(_text(files.headers), str(files.headers))
    if files.bearer_token is not None:
        token = _one_line(files.bearer_token, "a token on one line")
        found["Authorization"] = f"Bearer {token}"
    if files.basic_auth is not None:
        pair = _one_line(files.basic_auth, "'user:password' on one line")
        if ":" not in pair:
            msg = f"{files.basic_auth}: expected 'user:password' on one line"
            raise ValueError(msg)
        found["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return found


def header_lines(text: str, where: str) -> dict[str, str]:
    """Return headers from lines `Name: value`; blank lines and those that begin with `#` are none.

    A YAML mapping of plain words is such text, too: quotes around a value are taken off.

    Raises:
        ValueError: If a line is no header, or one that only the client itself may set.
    """
    found: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or line == "---":
            continue
        name, colon, value = line.partition(":")
        name, value = name.strip().strip("\"'"), _unquoted(value.strip())
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            msg = f"{where}: line {number} is no header; expected 'Name: value'"
            raise ValueError(msg)
        if name.lower() in _RESERVED:
            msg = f"{where}: line {number} sets {name}, which is not for a file to set; remove it"
            raise ValueError(msg)
        found[name] = value
    if not found or len(found) > MAX_HEADERS:
        msg = f"{where}: holds {len(found)} headers; expected 1 to {MAX_HEADERS}, 'Name: value'"
        raise ValueError(msg)
    return found


def may_leak(url: str) -> bool:
    """Whether what is sent to `url` can be read on the way: not encrypted, not to this machine.

    >>> may_leak("http://10.0.0.7:8000"), may_leak("http://127.0.0.1:8000")
    (True, False)
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "redis"} or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or 'unknown reason'}"
        raise ValueError(msg) from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def _text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            msg = f"{path}: not a regular file"
            raise ValueError(msg)
        if mode & stat.S_IWOTH:
            msg = f"{path}: everyone can write it; run: chmod o-w {path}"
            raise ValueError(msg)
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or 'unknown reason'}"
        raise ValueError(msg) from error
    if len(content) > MAX_FILE_BYTES:
        msg = f"{path}: larger than {MAX_FILE_BYTES:,} bytes; this is no file of credentials"
        raise ValueError(msg)
    return content.decode("utf-8", "replace").removeprefix("\ufeff")


def _one_line(path: Path, expected: str) -> str:
    text = _text(path).strip()
    if not _VALUE.fullmatch(text):
        msg = f"{path}: expected {expected}, in plain ASCII"
        raise ValueError(msg)
    return text
