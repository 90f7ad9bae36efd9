"""The encodings that protocols have in common: JSON, the values in it, proto3 JSON, compression."""
