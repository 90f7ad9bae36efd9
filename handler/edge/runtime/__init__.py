"""Lambda's Runtime API, spoken without Lambda's own runtime: `python -m dragoman.runtime`."""
