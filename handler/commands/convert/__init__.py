"""`dragoman convert`: models of other libraries become ONNX models and their settings, in a process of their own."""
