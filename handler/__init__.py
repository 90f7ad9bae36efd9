"""The edges: everything that touches the world. Settings, stores, model runtimes, ASGI, Lambda, the command line."""
