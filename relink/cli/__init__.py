"""The command line: options become calls of the library, results become text. One short function for each command.

A command imports what it alone needs: `relink isa` of one file is as fast as reading that file.
"""

# In the order of `relink --help`.
# isort: off
from relink.cli import (
    relinking,
    installing,
    looking,
    indexing,
    helping,
)
from relink.cli.application import app, main

__all__ = [
    "app",
    "helping",
    "indexing",
    "installing",
    "looking",
    "main",
    "relinking",
]
