"""`dragoman push`, `pull` and `list`. No server imports these publisher's tools."""
