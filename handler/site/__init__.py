"""The pages for people: status and API documentation."""
