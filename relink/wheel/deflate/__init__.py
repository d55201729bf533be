"""Deflate streams: reading them in time and memory that are bounded, and reusing spans of their blocks."""
