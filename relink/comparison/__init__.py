"""Comparing two wheels, member by member and byte by byte, and holding the difference against the plan that the new one carries.

Contents are compared as they are inflated. What does not differ in its compressed bytes is not inflated at all; of the rest one
ELF file at a time is held in memory, with those blocks of its other version that differ.
"""

from relink.comparison.wheels import diff

__all__ = ["diff"]
