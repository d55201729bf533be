"""Findings: code, level, subject, message, remedy; and the rules behind the codes."""
