"""Room for a model that is to be loaded: idle models are evicted for it."""
