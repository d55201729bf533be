"""Wheels fetched from a package index, installed into an environment after they were relinked, and repaired there."""
