"""The connections of HTTP/2: what zttp gets and tells, within the limits of the server."""
