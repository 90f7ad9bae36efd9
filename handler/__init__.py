"""Everything that touches the world: edges, lifecycle of models, runtimes, stores, settings, site, command line."""
