"""Comparing two wheels, member by member and byte by byte, and one of them with what relink makes of the other today.

What does not differ in its compressed bytes is not inflated. Large contents lie in files that are mapped.
"""
