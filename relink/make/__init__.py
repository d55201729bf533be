"""From a plan to a proved file: edit, write, read again, ask the real loader."""
