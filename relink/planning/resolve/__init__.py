"""Decisions about one wheel, as data with evidence."""
