"""The gate in front of every route of every protocol: keys, tokens, rights, origins and CORS."""
