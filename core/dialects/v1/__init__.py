"""KServe V1 and TensorFlow Serving's REST API, on the same paths."""
