"""Models from S3 and from stores that speak its API."""
