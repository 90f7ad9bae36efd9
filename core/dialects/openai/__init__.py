"""OpenAI's embeddings over HTTP."""
