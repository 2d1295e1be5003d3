"""Gateways that obey the breaker, one file each."""
