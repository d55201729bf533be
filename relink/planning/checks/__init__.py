"""Checks of what is not linking: GPU coverage, what a HIP runtime can load, and the machine."""
