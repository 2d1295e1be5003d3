"""The rows of each engine, one file an engine; `collector/sources/engine/engines.py` lists them."""
