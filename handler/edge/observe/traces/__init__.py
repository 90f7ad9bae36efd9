"""A request's trace for OpenTelemetry. Imported where DRAGOMAN_TRACES is on, and nowhere else."""
