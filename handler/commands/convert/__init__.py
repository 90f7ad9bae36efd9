"""`dragoman convert`: TensorFlow SavedModels into ONNX and settings. A publisher's tool: no server imports it."""
