"""Where libraries come from."""
