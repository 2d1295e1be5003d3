"""Single files that run inside gateways and servers; standard library only."""
