"""Grafana boards, built from the metric catalogue."""
