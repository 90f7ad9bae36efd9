"""`dragoman serve`: its flags, and the application under uvicorn."""
