"""The commands that relink prints: which of them it has tried itself, and why it has not tried the others."""

from __future__ import annotations

import shlex

__all__ = ["why_untried"]

_CHANGES = "it changes the environment"
_SETS = "it changes your shell"
_FETCHES = "it needs the network and changes the environment"
_ROOT = "it needs root and the network"


def why_untried(command: str) -> str:
    """Return why relink has not tried a command that it prints; empty where it has, or where the command only tells something.

    The reasons are a closed list. A command `relink WHEEL …` or `relink DIR …` was planned in the run that prints it, and so was
    `relink repair`, for the files that are installed; what is to be named in it first (DIR) nobody can try.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # a report that relink did not write
        return ""
    match words:
        case ["relink", "repair" | "install", *rest]:
            return _CHANGES if "--wheel" in rest else _FETCHES
        case ["export", *_]:
            return _SETS
        case ["relink", "fetch", *_] | ["pip", "download", *_]:
            return "it needs the network"
        case ["relink", *rest]:
            return "DIR is to be named" if "DIR" in rest else ""
        case ["pip", "install", *rest] | ["uv", "pip", "install", *rest]:
            return _CHANGES if any(word.endswith(".whl") for word in rest) else _FETCHES
        case [_, "-m", "pip", "install", *_] | ["uv", *_]:
            return _FETCHES
    return _ROOT
