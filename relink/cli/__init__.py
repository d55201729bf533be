"""The command line: options become calls of the library, results become text. One short function for each command.

A command imports what it alone needs: `relink isa` of one file is as fast as reading that file.
"""

# In the order of `relink --help`.
# isort: off
from relink.cli import (
    relinking,
    fetching,
    installing,
    looking,
    packaging,
    indexing,
    profile,
    helping,
)
from relink.cli.application import app, main

__all__ = [
    "app",
    "fetching",
    "helping",
    "indexing",
    "installing",
    "looking",
    "main",
    "packaging",
    "profile",
    "relinking",
]
