"""Sources: each reads its part of the world and yields observations."""
