"""Detectors: pure functions from readings and counts to verdicts. Start at `records.py`."""
