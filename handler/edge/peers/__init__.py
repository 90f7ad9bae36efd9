"""The workers of `dragoman serve --workers N` as one server: what one is told, all do, and each answers for all."""
