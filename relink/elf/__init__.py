"""One ELF file as facts, and the one tool that edits it; knows no wheel."""
