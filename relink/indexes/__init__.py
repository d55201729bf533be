"""Wheels from package indexes: installed into an environment, or built into an index."""
