"""Repositories in Google Cloud Storage (gs://) and in Azure Blob Storage (az://), by the client library obstore."""
