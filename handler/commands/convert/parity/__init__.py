"""The parity of a converted model and its original: the data, the answers of both, and how much they differ."""
