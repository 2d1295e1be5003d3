"""Logs for people and machines alike: one line an event, fixed phrase first, then `key=value`."""

from __future__ import annotations

import json
import logging
import sys

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    """Formats a record as `time level logger: phrase key=value …`, values as JSON."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.default_time_format = "%Y-%m-%dT%H:%M:%S"
        self.default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        line = super().formatMessage(record)
        extra = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        pairs = (f"{name}={json.dumps(value, default=str)}" for name, value in extra.items())
        return " ".join((line, *pairs))


def set_up_logs(level: int = logging.INFO) -> None:
    """Send every log line to standard error, in UTC."""
    import time

    formatter = Lines()
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # what happens per request is a metric
    for quiet in ("uvicorn.error", "alembic"):
        logging.getLogger(quiet).setLevel(logging.WARNING)
