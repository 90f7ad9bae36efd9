"""The workers of `dragoman serve --workers N` as one server: each change is made in all, and each answers for all."""
