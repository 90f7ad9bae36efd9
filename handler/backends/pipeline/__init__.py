"""Pipelines: models whose answer is made by other models of the same repository, step by step."""
