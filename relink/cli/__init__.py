"""The command line. One short function a command; everything else is done elsewhere.

A command imports what it alone needs: `relink isa` of one file is as fast as reading that file.
"""

# In the order of `relink --help`.
# isort: off
from relink.cli import relinking, looking, reporting, packaging, profile, helping
from relink.cli.application import app, main

__all__ = ["app", "helping", "looking", "main", "packaging", "profile", "relinking", "reporting"]
