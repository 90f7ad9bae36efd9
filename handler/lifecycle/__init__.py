"""Models in this process: listed, loaded, used, replaced, evicted."""
