"""TensorFlow SavedModels: opened in a session, cut at their signatures, and made one ONNX model and its settings."""
