"""Where requests come in: ASGI, gRPC, Connect and Lambda events, and the threads that work on them."""
