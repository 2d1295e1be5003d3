"""Getting breaker states out: signing, the outbox worker, the egress guard."""
