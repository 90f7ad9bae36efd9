"""JSON, proto3 JSON and compression: the encodings of tensors' elements."""
