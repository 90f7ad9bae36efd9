"""Room for a model that is to be loaded, in memory and on the disk: idle models are evicted for it."""
