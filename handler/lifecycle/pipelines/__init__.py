"""Pipelines in the lifecycle: their steps' models are loaded before them, and stay in memory with them."""
