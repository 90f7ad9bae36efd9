"""The connections of uvicorn with bounds: sizes of heads, times of heads and bodies, numbers of connections."""
