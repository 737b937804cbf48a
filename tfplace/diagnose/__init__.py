"""Rules over analyses: findings with a number, a cause and the change to make."""
