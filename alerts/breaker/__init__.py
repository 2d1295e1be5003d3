"""The circuit breaker: a pure machine, its guards, admission, and the controller."""
