"""Remote calls over HTTP: Connect, gRPC-Web, and gRPC itself where the server speaks HTTP/2."""
