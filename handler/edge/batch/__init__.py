"""Batches of records: read from files and messages, run together, one answer for each record."""
