"""Fusewire's receiver: put it around an ASGI or WSGI app, and the app obeys Fusewire's breakers.

One file, standard library only, Python 3.9 or newer: copy it into the gateway or the app.

    app = FusewireReceiver(app, tier="chat", state_url="http://fusewire:9731/v1/state")   # pull
    app = FusewireReceiver(app, tier="chat", secret="whsec_...", workers=1)               # webhook

Pull works in any number of workers: each keeps its own long poll. A webhook reaches one worker
only, so without `state_url` more than one is refused (see `worker_count` for what it can see).

What is withheld is a lease on this process's own monotonic clock, counted from arrival. When no
renewal comes, because Fusewire or the way to it is gone, everything is let in again.
"""

from __future__ import annotations

import base64
import hmac
import json
import math
import os
import random
import re
import sys
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping, MutableMapping
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, cast
from urllib import request

BODY_MOST, DOCUMENT_MOST = 64 * 1024, 8 * 1024 * 1024  # bytes
TOLERANCE_SECONDS = 300
LEASE_SECONDS = 60.0
LEASE_MOST_SECONDS = 3600.0
HELD_MOST = 10_000
WAIT_SECONDS = 25
_SERVERS = ("uvicorn", "gunicorn", "hypercorn", "granian")
# what reading an answer may raise, whatever the network sends; a URLError is an OSError
_UNREADABLE = (OSError, HTTPException, ValueError, ArithmeticError, RecursionError, MemoryError)

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class Held(NamedTuple):
    """What one controller last said of the tier (`target` empty) or of one target."""

    epoch: int
    seq: int
    ratio: float
    state: str
    retry_after: int
    ends: float  # on the monotonic clock; infinite where nothing is withheld


class Reply(NamedTuple):
    """An answer of the receiver's own: status, JSON, and Retry-After where it says to wait."""

    status: int
    content: Mapping[str, object]
    retry_after: int = 0

    def headers(self, body: bytes) -> list[tuple[str, str]]:
        wait = [("retry-after", str(self.retry_after))] if self.retry_after else []
        fixed = [("content-type", "application/json"), ("cache-control", "no-store")]
        return [*fixed, ("content-length", str(len(body))), *wait]


def decoded_secret(text: str) -> bytes:
    """Return the bytes of a `whsec_` secret; ValueError if it is none."""
    key = base64.b64decode(text.strip().replace("whsec_", "", 1), validate=True)
    if len(key) not in range(24, 65):
        msg = f"fusewire receiver: a secret of {len(key)} bytes, expected base64 of 24 to 64"
        raise ValueError(msg)
    return key


def verified(secrets: Iterable[bytes], headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Check a Standard Webhooks signature: the time first, then each v1 entry in constant time."""
    stamp = headers.get("webhook-timestamp", "")
    numeric = stamp.isascii() and stamp.isdigit() and len(stamp) in range(1, 12)
    if not numeric or abs(now - int(stamp)) > TOLERANCE_SECONDS:
        return False
    content = f"{headers.get('webhook-id', '')}.{stamp}.".encode("latin-1", "replace") + body
    good = False
    for secret in secrets:
        mac = base64.b64encode(hmac.new(secret, content, sha256).digest())
        for entry in headers.get("webhook-signature", "").split(" "):
            version, _, found = entry.partition(",")
            same = hmac.compare_digest(found.encode("latin-1", "replace"), mac)
            good = good or (same and version == "v1")
    return good


def worker_count(workers: Optional[int], environ: Mapping[str, str], argv: Iterable[str]) -> int:
    """Return how many worker processes serve this app, as far as can be seen from inside one.

    The largest of: an explicit `workers`, WEB_CONCURRENCY, GUNICORN_CMD_ARGS and the command line
    of uvicorn, gunicorn, hypercorn and granian. It cannot see a gunicorn.conf.py, workers that
    another program starts, or several pods behind one address: then say it yourself, or pull.
    """
    words = list(argv)
    line = " ".join(words) if words and Path(words[0]).stem in _SERVERS else ""
    text = f"{line} {environ.get('GUNICORN_CMD_ARGS', '')} -w{environ.get('WEB_CONCURRENCY', '')}"
    found = re.findall(r"(?<!\S)(?:-w|--workers)[=\s]*(\d{1,6})(?!\S)", text)
    return max([workers or 1, *(int(count) for count in found)])


def _number(value: object, least: float, most: float, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    comparable = value <= most or value > most  # NaN is not
    return float(min(most, max(least, value))) if comparable else otherwise


def _members(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _pair(members: Mapping[str, object], second: str = "seq") -> Optional[tuple[int, int]]:
    one, two = members.get("epoch"), members.get(second)
    return (one, two) if isinstance(one, int) and isinstance(two, int) else None


class Ledger:
    """Keeps the newest word of each controller, and lets go of what is not renewed. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.counts: dict[str, int] = {}
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._held: dict[tuple[str, str], Held] = {}
        self._documents: dict[str, tuple[int, int]] = {}

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def apply(self, data: Mapping[str, object]) -> Reply:
        """Take one message over if it is newer than what is held: compare and set in one lock."""
        pair = _pair(data)
        target = _members(data.get("target")).get("id", "")
        if pair is None or not isinstance(target, str):
            return Reply(400, {"error": "no epoch and seq, or no target: expected schema 1"})
        place = (str(data.get("controller", "")), target)
        lease = _members(data.get("lease")).get("seconds")
        seconds = _number(lease, 0, LEASE_MOST_SECONDS, LEASE_SECONDS)
        with self._lock:
            held = self._held.get(place)
            if held is not None and pair < (held.epoch, held.seq):
                self.count("refused_stale")
                current = {"epoch": held.epoch, "seq": held.seq, "controller": place[0]}
                return Reply(409, {"current": current})
            if held is None and len(self._held) >= HELD_MOST:
                self.count("refused_full")
                return Reply(507, {"error": "too many targets are held already"})
            if held is None or pair > (held.epoch, held.seq):  # a repeat does not renew the lease
                self._held[place] = held = self._newer(pair, data, seconds)
                self.count("applied")
        applied = {"applied": True, "epoch": pair[0], "seq": pair[1], "admit_ratio": held.ratio}
        return Reply(200, applied)

    def take(self, document: Mapping[str, object], tier: str) -> bool:
        """Take a state document over, whole; False if it is older than what is held."""
        controller, number = str(document.get("controller", "")), _pair(document, "rev")
        if number is None:
            return False
        ttl = _number(document.get("ttl_seconds"), 0, LEASE_MOST_SECONDS, LEASE_SECONDS)
        rows: list[tuple[str, Mapping[str, object]]] = []
        for kind, name in (("tiers", "id"), ("targets", "tier")):
            found = document.get(kind)
            members = map(_members, found if isinstance(found, list) else ())
            mine = [row for row in members if row.get(name) == tier]
            rows += [(str(row.get("id", "")) if name == "tier" else "", row) for row in mine]
        with self._lock:
            if number < self._documents.get(controller, (0, 0)):
                self.count("refused_stale")
                return False
            self._documents[controller] = number
            told = {(controller, target) for target, _ in rows}
            for place in [p for p in self._held if p[0] == controller and p not in told]:
                del self._held[place]
            for target, row in rows[:HELD_MOST]:
                pair, held = _pair(row), self._held.get((controller, target))
                if pair is not None and (held is None or pair >= (held.epoch, held.seq)):
                    self._held[controller, target] = self._newer(pair, row, ttl)
            self.count("documents")
        return True

    def strictest(self) -> dict[str, Held]:
        """Return the strictest live word about each known target, and under "" about the tier."""
        with self._lock:
            self._let_go()
            found: dict[str, Held] = {}
            for (_, name), held in self._held.items():
                if name not in found or held.ratio < found[name].ratio:
                    found[name] = held
        return found

    def of_tier(self) -> Held:
        """Return the strictest live word about the tier; without any everything is let in."""
        return self.strictest().get("", Held(0, 0, 1.0, "closed", 0, math.inf))

    def _let_go(self) -> None:
        now = self._monotonic()
        for place, held in self._held.items():
            if held.ends <= now:  # the numbers stay: they fence what is older
                self._held[place] = Held(held.epoch, held.seq, 1.0, "lapsed", 0, math.inf)
                self.count("lease_lapsed")

    def _newer(self, pair: tuple[int, int], row: Mapping[str, object], seconds: float) -> Held:
        ratio = _number(row.get("admit_ratio"), 0, 1, 1)
        wait = int(_number(row.get("retry_after_seconds"), 0, 3600, 1))
        ends = self._monotonic() + seconds if ratio < 1 else math.inf
        return Held(pair[0], pair[1], ratio, str(row.get("state", ""))[:32], wait, ends)


class FusewireReceiver:
    """ASGI middleware (`wsgi` is the same for WSGI) that admits requests as Fusewire says.

    Args:
        app: The app behind it.
        tier: The tier that the app serves; messages about others are not for it.
        secret: Signing secret of the webhook, `whsec_...`; without it no webhook is taken.
        previous_secret: The one before, while it is being rotated.
        path: Where the webhook arrives (POST) and the state can be read back (GET).
        state_url: Fusewire's `/v1/state`; with it each worker pulls in a thread of its own.
        state_token: Bearer token for `state_url`.
        workers: How many processes serve this app, if it cannot be seen from inside.
        prefixes: Only requests to paths with one of these are ever refused.
        monotonic, wall, uniform: Clocks and chance, for tests.
    """

    def __init__(  # noqa: PLR0913  # a setting each, all named
        self,
        app: Any,  # noqa: ANN401  # ASGI or WSGI: a callable that the host knows
        *,
        tier: str,
        secret: str = "",
        previous_secret: str = "",
        path: str = "/hooks/fusewire",
        state_url: Optional[str] = None,
        state_token: str = "",
        workers: Optional[int] = None,
        prefixes: tuple[str, ...] = ("/",),
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # noqa: TID251  # stands alone in the host's process
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if not secret and not state_url:
            msg = "fusewire receiver: give a secret (webhook), a state_url (pull) or both"
            raise ValueError(msg)
        count = worker_count(workers, os.environ, sys.argv)
        if not state_url and count > 1:
            msg = f"fusewire receiver: {count} workers, a webhook reaches only one: give state_url"
            raise RuntimeError(msg)
        self.ledger = Ledger(monotonic)
        self._app, self._tier, self._path = app, tier, path
        self._secrets = [decoded_secret(text) for text in (secret, previous_secret) if text]
        self._state_url, self._state_token = state_url, state_token
        self._prefixes, self._wall, self._uniform = prefixes, wall, uniform
        self._polling_in, self._stopped = 0, threading.Event()

    def ratios(self) -> dict[str, float]:
        """Return the share of traffic each known target should get, 0..1, for own balancing."""
        return {name: held.ratio for name, held in self.ledger.strictest().items() if name}

    def admit_ratio(self) -> float:
        """Return the share of the tier's requests that is let in now, 0..1."""
        return self.ledger.of_tier().ratio

    def close(self) -> None:
        self._stopped.set()

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Send
    ) -> None:
        self._pull_in_this_process()
        if scope["type"] != "http" or scope["path"] != self._path:
            refusal = self._refusal(scope["path"]) if scope["type"] == "http" else None
            if refusal is None:
                await self._app(scope, receive, send)
            else:
                await _send(refusal, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        body, more = b"", scope["method"] == "POST"
        while more and len(body) <= BODY_MOST:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await _send(self._hook(scope["method"], headers, body), send)

    def wsgi(self, environ: Message, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request as WSGI middleware: `app = FusewireReceiver(app, ...).wsgi`."""
        self._pull_in_this_process()
        path, method = environ.get("PATH_INFO", "/"), environ.get("REQUEST_METHOD", "GET")
        if path == self._path:
            names = ("id", "timestamp", "signature")
            headers = {f"webhook-{n}": environ.get(f"HTTP_WEBHOOK_{n.upper()}", "") for n in names}
            size = environ.get("CONTENT_LENGTH") or "0"
            length = min(int(size), BODY_MOST + 1) if size.isdigit() else 0
            reply: Optional[Reply] = self._hook(method, headers, environ["wsgi.input"].read(length))
        else:
            reply = self._refusal(path)
        if reply is None:
            return cast("Iterable[bytes]", self._app(environ, start_response))
        body = json.dumps(reply.content).encode()
        start_response(f"{reply.status} Fusewire", reply.headers(body))
        return [body]

    def _refusal(self, path: str) -> Optional[Reply]:
        """Return the answer for a request that is not let in, in the shape of OpenAI's errors."""
        if not path.startswith(self._prefixes):
            return None
        held = self.ledger.of_tier()
        if held.ratio >= 1 or self._uniform(0, 1) < held.ratio:
            return None
        self.ledger.count("denied")
        wait = max(1, math.ceil(held.retry_after * self._uniform(0.8, 1.2)))
        text = f"The model is overloaded; try again in {wait} seconds."
        code = {"type": "overloaded_error", "code": "fusewire_breaker_open"}
        error = {"message": text, "param": None, "retry_after": wait, **code}
        return Reply(503, {"error": error}, wait)

    def _hook(self, method: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if method == "GET":
            words = self.ledger.strictest()
            words.setdefault("", self.ledger.of_tier())
            shown = {name: [one.ratio, one.epoch, one.seq] for name, one in words.items()}
            numbers = {"admit_ratio": shown.pop(""), "targets": shown}
            return Reply(200, {"tier": self._tier, **numbers, "counts": self.ledger.counts})
        if method != "POST" or not self._secrets:
            return Reply(405, {"error": "expected a signed POST, or GET; is a secret configured?"})
        if len(body) > BODY_MOST:
            return Reply(413, {"error": f"expected at most {BODY_MOST} bytes"})
        if not verified(self._secrets, headers, body, self._wall()):
            self.ledger.count("refused_signature")
            return Reply(401, {"error": "signature or time not valid; compare secret and clock"})
        return self._take(body)

    def _take(self, body: bytes) -> Reply:
        try:
            data = _members(_members(json.loads(body)).get("data"))
        except (ValueError, RecursionError):
            return Reply(400, {"error": "expected JSON"})
        if data.get("tier") != self._tier or data.get("dry_run") is True:
            return Reply(202, {"applied": False, "tier": self._tier})
        return self.ledger.apply(data)

    def _pull_in_this_process(self) -> None:
        """Start the pulling thread once a process: a fork does not take threads along."""
        if self._state_url and self._polling_in != os.getpid():
            self._polling_in = os.getpid()
            threading.Thread(target=self._pull, name="fusewire-pull", daemon=True).start()

    def _pull(self) -> None:
        opener = request.OpenerDirector()  # no proxies, no redirects, no file: URLs
        for handler in (request.HTTPHandler, request.HTTPSHandler):
            opener.add_handler(handler())
        rev = -1
        while not self._stopped.is_set():
            try:
                before, rev = rev, self._pull_once(opener, rev)
                if rev == before:  # no news: not in a tight loop, whoever answers at once
                    self._stopped.wait(0.1)
            except _UNREADABLE:
                self.ledger.count("pull_failed")
                rev = -1
                self._stopped.wait(self._uniform(1, 3))

    def _pull_once(self, opener: request.OpenerDirector, rev: int) -> int:
        """Ask for a state newer than `rev` and take it over; return its rev."""
        query = f"?after={rev}&wait={WAIT_SECONDS}" if rev >= 0 else ""
        token = {"authorization": f"Bearer {self._state_token}"} if self._state_token else {}
        asked = request.Request(f"{self._state_url}{query}", headers=token)  # noqa: S310  # configured
        with opener.open(asked, timeout=WAIT_SECONDS + 10) as response:
            if response.status == HTTPStatus.NOT_MODIFIED:
                return rev
            answered = response.status == HTTPStatus.OK
            document = _members(json.loads(response.read(DOCUMENT_MOST))) if answered else {}
        if not self.ledger.take(document, self._tier):
            msg = "fusewire receiver: not a state document, or an older one than before"
            raise ValueError(msg)
        return cast("int", document["rev"])


async def _send(reply: Reply, send: Send) -> None:
    body = json.dumps(reply.content).encode()
    headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers(body)]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
