"""Whole runs: relink a wheel or a tree, apply a plan, compare, answer questions."""
