"""gRPC's own services: health checking and reflection."""
