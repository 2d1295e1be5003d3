"""The same signals from a Prometheus server that stores them."""
