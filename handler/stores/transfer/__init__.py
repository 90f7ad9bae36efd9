"""A version's files on their way from any remote store into the cache: shared streams, resumed, retried, verified."""
