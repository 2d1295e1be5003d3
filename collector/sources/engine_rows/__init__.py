"""The rows of each engine, one file an engine; `collector/sources/engines.py` lists them."""
