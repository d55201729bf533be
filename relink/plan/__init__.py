"""Decisions, as data with evidence."""
