"""What a target's server says when it is asked: facts, a probe, a canary."""
