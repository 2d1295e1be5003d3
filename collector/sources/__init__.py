"""Sources: each reads its part of the world and yields observations.

`protocols` says what a source is, `settings` which kinds a configuration may name, `joined` how
several sources of one target become one reading, `polling` when they are read. The engine's own
page is the path to read first, in the order it travels: `fetch` (bytes over HTTP, on `connections`
and `wire`), `page/` (lines to samples, series, buckets), `engine/` (samples to canonical signals by
rows of data, quantiles, findings), `scrape` (all of it for one target).

| Room | What it reads |
|---|---|
| `page/`, `engine/` | a metrics page; a new engine is a file of rows in `engine/engine_rows/` |
| `server/` | what a target's server says when it is asked: facts, a probe, a canary |
| `stored/` | the same signals from a Prometheus server |
| `gpu/` | GPUs by NVML and dcgm-exporter, PyTorch's allocator |
| `host/` | containers, processes, Kubernetes |
| `logs/` | followed log files |
| `neighbours/` | clients, quotas, brokers, vector stores |
| `other_pages` | any page, family by family |
"""
