"""Connect and gRPC-Web: remote calls over plain HTTP."""
