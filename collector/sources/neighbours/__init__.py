"""What stands beside a tier: clients, quotas, brokers, vector stores."""
