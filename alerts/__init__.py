"""What is done about verdicts: alert state, rules, Alertmanager, breaker, delivery."""
