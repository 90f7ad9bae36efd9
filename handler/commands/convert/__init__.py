"""`dragoman convert`: TensorFlow SavedModels to ONNX and settings. No server imports this publisher's tool."""
