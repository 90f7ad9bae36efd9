"""JSON, proto3 JSON and compression: how the elements of tensors are written."""
