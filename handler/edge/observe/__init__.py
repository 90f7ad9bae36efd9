"""What an operator sees of the requests: counts, lines of the log, metrics, traces, payloads."""
