"""The metrics page: ready numbers by series, rendered through prometheus-client's registry.

All of it lives on the event loop and is written from there only. What is written here is what the
next scrape sees; nothing is computed at scrape time but ages. A number that is not known has no
series: there is no NaN on this page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as ClientFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from detectors.records import Histogram
from detectors.signals import READING_SIGNALS
from exporters.catalog import (
    CATALOG,
    PREFIX,
    SERIES_REFUSED,
    SIGNAL_ABSENT,
    SIGNAL_AGE,
    VALUES_REFUSED,
    Metric,
    MetricKind,
)

DEFAULT_SERIES_LIMIT = 100_000
LABEL_CHARACTERS = 128  # longer label values are cut: they come from configuration and pages
SHARE_OF_TARGETS = 0.8  # of the limit; the rest is kept for verdicts, breakers and ourselves
CHUNK_SAMPLES = 100  # about 1 ms of rendering at a time

Labels: TypeAlias = Mapping[str, str]
Key: TypeAlias = tuple[str, ...]
Group: TypeAlias = tuple[str, ...]

_OF_TARGETS = frozenset(
    {PREFIX + row.name for row in READING_SIGNALS} | {SIGNAL_AGE.name, SIGNAL_ABSENT.name}
)


@dataclass(frozen=True, slots=True)
class Since:
    """A moment of the monotonic clock, shown as its age."""

    moment: float


Value: TypeAlias = float | Since | Histogram
_NO_SERIES: dict[Key, Value] = {}


class _Family:
    """The series of one metric, in groups of one (tier, target) where it has these labels."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.grouped = metric.labels[:2] == ("tier", "target")
        self.known = frozenset(metric.labels)
        self.groups: dict[Group, dict[Key, Value]] = {}

    def group_of(self, key: Key) -> Group:
        return key[:2] if self.grouped else ()

    def blank(self) -> ClientFamily:
        """Return the empty family as prometheus-client knows it."""
        name = self.metric.name
        if self.metric.kind == "counter":
            name = name.removesuffix("_total")
        return ClientFamily(name, self.metric.help, self.metric.kind)


class MetricsPage:
    """Every series that Fusewire exposes, bounded, in a registry of its own.

    A write with a metric or label that the catalogue does not have is a mistake in the program
    and raises. A write beyond `series_limit` (exposed lines) or of a number that is not finite is
    refused and counted, each time it is tried.
    """

    def __init__(
        self, *, monotonic: Callable[[], float], series_limit: int = DEFAULT_SERIES_LIMIT
    ) -> None:
        self._monotonic = monotonic
        self._limit = series_limit
        self._families = {name: _Family(metric) for name, metric in CATALOG.items()}
        self._lines = 0
        self._refused = 0
        self._not_finite = 0
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    @property
    def series(self) -> int:
        """Lines that the page holds now; a histogram counts with all its buckets."""
        return self._lines

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """Set a gauge, or a counter that is counted elsewhere and never falls.

        A value that is not finite takes a gauge off the page and leaves a counter as it was.

        Raises:
            ValueError: If the catalogue has no such metric, kind or label.
        """
        family = self._family(metric, "gauge", "counter")
        key = _key(family, labels)
        if math.isfinite(value):
            self._put(family, key, float(value))
            return
        self._not_finite += 1
        if metric.kind == "gauge":
            self._drop(family, key)

    def set_row(
        self, metrics: Sequence[Metric], labels: Sequence[str], values: Sequence[float | None]
    ) -> None:
        """Set several gauges that have the same labels; None takes one off the page.

        The same as `set` and `remove` one by one, for less: the labels are read once.

        Args:
            metrics: The gauges, each with the labels of the first.
            labels: Values of all their labels, in the catalogue's order.
            values: One a gauge; one that is not finite takes its gauge off and is counted.

        Raises:
            ValueError: If the catalogue has no such gauge, or the numbers of labels, gauges or
                values do not match.
        """
        key = tuple([clean(label) for label in labels])
        for metric, value in zip(metrics, values, strict=True):
            family = self._family(metric, "gauge")
            if len(key) != len(metric.labels):
                msg = f"metric {metric.name}: {len(key)} labels, expected {len(metric.labels)}"
                raise ValueError(msg)
            if value is not None and math.isfinite(value):
                self._put(family, key, float(value))
                continue
            self._not_finite += value is not None
            self._drop(family, key)

    def set_ready(self, metric: Metric, key: Key, value: float | None) -> None:
        """Do what `set` and `remove` do, for labels that are clean and in the catalogue's order.

        For what is written again and again of a target: None takes its gauge off the page.
        """
        family = self._families[metric.name]
        if value is None:
            self._drop(family, key)
        elif math.isfinite(value):
            self._put(family, key, float(value))
        else:
            self._not_finite += 1
            if metric.kind == "gauge":
                self._drop(family, key)

    def set_ready_since(self, metric: Metric, key: Key, since: Since) -> None:
        """Do what `set_since` does; one `Since` may stand for many series."""
        self._put(self._families[metric.name], key, since)

    def keys(self, metric: Metric, group: Group) -> KeysView[Key]:
        """Return the label values of a metric's series of one (tier, target)."""
        return self._families[metric.name].groups.get(group, _NO_SERIES).keys()

    def set_since(self, metric: Metric, labels: Labels, moment: float) -> None:
        """Set a gauge that shows the age of `moment`, in seconds of the monotonic clock.

        Raises:
            ValueError: If the catalogue has no such metric, kind or label.
        """
        family = self._family(metric, "gauge")
        self._put(family, _key(family, labels), Since(moment))

    def add(self, metric: Metric, labels: Labels, amount: float = 1.0) -> None:
        """Count `amount` more; 0 makes the series appear.

        Raises:
            ValueError: If the catalogue has no such metric, kind or label, or `amount` is not a
                finite number >= 0.
        """
        family = self._family(metric, "counter")
        if not (math.isfinite(amount) and amount >= 0):
            msg = f"metric {metric.name}: cannot count {amount}, expected a finite number >= 0"
            raise ValueError(msg)
        key = _key(family, labels)
        before = family.groups.get(family.group_of(key), {}).get(key, 0.0)
        self._put(family, key, (before if isinstance(before, float) else 0.0) + amount)

    def observe_histogram(self, metric: Metric, labels: Labels, histogram: Histogram) -> None:
        """Show a cumulative histogram as it is; the caller has corrected it for resets.

        Raises:
            ValueError: If the catalogue has no such metric, kind or label.
        """
        family = self._family(metric, "histogram")
        key = _key(family, labels)
        numbers = (histogram.total, histogram.sum, *histogram.counts)
        whole = len(histogram.bounds) == len(histogram.counts)
        if whole and all(map(math.isfinite, numbers)):
            self._put(family, key, histogram)
        else:
            self._not_finite += 1

    def remove(self, metric: Metric, **match: str) -> None:
        """Take the series of `metric` off the page whose labels are as in `match`.

        Raises:
            ValueError: If the catalogue has no such metric or label.
        """
        family = self._family(metric)
        wanted = _wanted(family, match)
        if len(wanted) == len(family.metric.labels):
            self._drop(family, tuple([wanted[place] for place in range(len(wanted))]))
            return
        groups: list[Group] = list(family.groups)
        if family.grouped and {0, 1} <= wanted.keys():
            groups = [(wanted[0], wanted[1])]
        for group in groups:
            for key in list(family.groups.get(group, ())):
                if all(key[place] == value for place, value in wanted.items()):
                    self._drop(family, key)

    def forget(self, *, tier: str, target: str) -> None:
        """Take everything about a target that vanished off the page."""
        group = (clean(tier), clean(target))
        for family in self._families.values():
            if family.grouped:
                for key in list(family.groups.get(group, ())):
                    self._drop(family, key)

    def collect(self) -> Iterator[ClientFamily]:
        """Yield every family that has a series, as prometheus-client's registry asks."""
        for family in self._families.values():
            whole = family.blank()
            for samples in self._samples(family, CHUNK_SAMPLES):
                whole.samples.extend(samples)
            if whole.samples:
                yield whole

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the whole page and its content type, as the scraper's Accept header asks.

        It takes about 8 µs a line; a large fleet is served by `render_families` instead.
        """
        encode, content_type = _encoder(accept)
        return encode(self.registry), content_type

    def content_type(self, accept: str = "") -> str:
        """Return the content type of `render` and `render_families` for this Accept header."""
        return _encoder(accept)[1]

    def render_families(self, accept: str = "") -> Iterator[bytes]:
        """Yield the page of `render` in pieces of about a millisecond's work.

        Whoever serves it lets the event loop run between pieces. The page may change meanwhile:
        each group of a target is shown as it is when its turn comes.
        """
        encode, content_type = _encoder(accept)
        end = b"# EOF\n" if content_type.startswith("application/openmetrics-text") else b""
        for family in self._families.values():
            first = True
            for samples in self._samples(family, CHUNK_SAMPLES):
                part = family.blank()
                part.samples = samples
                text = encode(_Shown(part)).removesuffix(end)
                yield text if first else text.split(b"\n", 2)[2]  # HELP and TYPE stand once
                first = False
        yield end

    def _samples(self, family: _Family, most: int) -> Iterator[list[Sample]]:
        """Yield the samples of a family in lists of `most`, up to one histogram longer."""
        samples: list[Sample] = self._own(family.metric)
        for group in list(family.groups):
            for key, value in list(family.groups.get(group, {}).items()):
                labels = dict(zip(family.metric.labels, key, strict=True))
                samples.extend(self._lines_of(family.metric, labels, value))
                if len(samples) >= most:
                    yield samples
                    samples = []
        if samples:
            yield samples

    def _own(self, metric: Metric) -> list[Sample]:
        """Return what the page counts about itself."""
        own = {SERIES_REFUSED.name: self._refused, VALUES_REFUSED.name: self._not_finite}
        return [Sample(metric.name, {}, own[metric.name])] if metric.name in own else []

    def _lines_of(self, metric: Metric, labels: dict[str, str], value: Value) -> list[Sample]:
        if isinstance(value, Histogram):
            return _histogram_samples(metric.name, labels, value)
        if isinstance(value, Since):
            return [Sample(metric.name, labels, max(0.0, self._monotonic() - value.moment))]
        return [Sample(metric.name, labels, value)]

    def _family(self, metric: Metric, *kinds: MetricKind) -> _Family:
        family = self._families.get(metric.name)
        if family is None or (family.metric is not metric and family.metric != metric):
            msg = f"metric {metric.name!r} is not in exporters/catalog.py; add it there"
            raise ValueError(msg)
        if kinds and metric.kind not in kinds:
            msg = f"metric {metric.name}: is a {metric.kind}, used as {' or '.join(kinds)}"
            raise ValueError(msg)
        return family

    def _put(self, family: _Family, key: Key, value: Value) -> None:
        group = family.groups.get(family.group_of(key))
        before = group.get(key) if group is not None else None
        if group is not None and type(before) is type(value) and type(value) is not Histogram:
            group[key] = value  # mostly: a number in place of another
            return
        more = _line_count(value) - (_line_count(before) if before is not None else 0)
        if more > 0:
            share = SHARE_OF_TARGETS if family.metric.name in _OF_TARGETS else 1.0
            if self._lines + more > self._limit * share:
                self._refused += 1
                self._drop(family, key)
                return
        self._lines += more
        if group is None:
            group = family.groups[family.group_of(key)] = {}
        group[key] = value

    def _drop(self, family: _Family, key: Key) -> None:
        place = family.group_of(key)
        group = family.groups.get(place, {})
        value = group.pop(key, None)
        if value is not None:
            self._lines -= _line_count(value)
            if not group:
                del family.groups[place]


@dataclass(frozen=True, slots=True)
class _Shown:
    """One family where prometheus-client's encoders expect a registry."""

    family: ClientFamily

    def collect(self) -> Iterator[ClientFamily]:
        yield self.family


def _encoder(accept: str) -> tuple[Callable[[object], bytes], str]:
    """Return prometheus-client's encoder; an Accept header nobody can read gets plain text."""
    try:
        return choose_encoder(accept)  # type: ignore[return-value]  # asks only for collect()
    except (TypeError, ValueError):  # a version that is no number
        return choose_encoder("")  # type: ignore[return-value]  # as above


def _key(family: _Family, labels: Labels) -> Key:
    if not labels.keys() <= family.known:
        _refuse_labels(family, labels)
    return tuple([clean(labels.get(name, "")) for name in family.metric.labels])


def _wanted(family: _Family, match: Labels) -> dict[int, str]:
    if not match.keys() <= family.known:
        _refuse_labels(family, match)
    places = {name: place for place, name in enumerate(family.metric.labels)}
    return {places[name]: clean(value) for name, value in match.items()}


def _refuse_labels(family: _Family, labels: Labels) -> None:
    unknown = ", ".join(sorted(labels.keys() - family.known))
    expected = ", ".join(family.metric.labels) or "none"
    msg = f"metric {family.metric.name}: no label {unknown}; exporters/catalog.py has: {expected}"
    raise ValueError(msg)


def clean(value: str) -> str:
    """Return a label value of printable characters and bounded length."""
    if len(value) <= LABEL_CHARACTERS and value.isprintable():
        return value
    cut = value[:LABEL_CHARACTERS]
    return "".join(letter if letter.isprintable() else "_" for letter in cut)


def _line_count(value: Value) -> int:
    return len(value.bounds) + 3 if isinstance(value, Histogram) else 1


def _histogram_samples(name: str, labels: dict[str, str], shown: Histogram) -> list[Sample]:
    bounds = (*map(floatToGoString, shown.bounds), "+Inf")
    samples = [
        Sample(name + "_bucket", {**labels, "le": bound}, count)
        for bound, count in zip(bounds, (*shown.counts, shown.total), strict=True)
    ]
    samples.append(Sample(name + "_count", labels, shown.total))
    samples.append(Sample(name + "_sum", labels, shown.sum))
    return samples
