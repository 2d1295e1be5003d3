"""An engine's page in canonical signals: rows of data, and what can be wrong with it."""
