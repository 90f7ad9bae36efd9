"""The connections of uvicorn, HTTP/1.1 and HTTP/2, with bounds: sizes and times of requests, numbers of connections."""
