"""KServe V2, the Open Inference Protocol: over HTTP and as remote calls."""
