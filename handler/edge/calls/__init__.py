"""The edge of Connect, gRPC-Web, and gRPC over HTTP/2: a call is read, worked on, and answered as it goes on."""
