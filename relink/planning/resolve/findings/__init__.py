"""Decisions of the resolver as findings."""
