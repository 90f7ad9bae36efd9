"""Models from S3 and compatible stores."""
