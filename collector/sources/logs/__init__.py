"""Followed log files against a table of patterns."""
