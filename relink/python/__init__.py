"""What a Python process loads, read from sources; nothing of them runs."""
