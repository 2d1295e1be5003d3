"""Containers, processes and what Kubernetes says of them."""
