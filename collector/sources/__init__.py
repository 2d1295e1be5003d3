"""Sources: each reads its part of the world and yields observations.

The scrape source, in the order a page travels: `fetch` (bytes over HTTP), `page` (lines to samples,
with `families` and `keys`), `translate` (samples to canonical signals, by the rows of `engines`,
with `buckets` and `versions`), `series` (what must not fall between scrapes), `scrape` (all of it
for one target), `polling` (its schedule). A new engine is new rows in `engines.py`.
"""
