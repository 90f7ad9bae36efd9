"""What this process has answered so far, counted in one place."""
