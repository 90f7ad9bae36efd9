"""Into and out of repositories: `dragoman push`, `pull`, `list`. A publisher's tools, which no server imports."""
