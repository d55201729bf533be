"""The options of `relink nix` that make the same plan anew: what a failing assertion of nix/resolve.nix prints."""

from __future__ import annotations

import shlex

from relink.planning.options import Options

__all__ = ["options_text"]

_LISTS = (
    ("--gpu", "gpus"),
    ("--allow-missing", "allow_missing"),
    ("--substitute", "substitute"),
    ("--assume-symbols", "assume_symbols"),
    ("--preload", "preload"),
    ("--stub", "stub"),
    ("--ignore", "ignore"),
)


def options_text(options: Options) -> str:
    """Return the options that decide what is in a plan, quoted for a shell.

    Left out are places of this machine: prefixes, closures, the Python and the loader.
    """
    words = [word for option, name in _LISTS for value in getattr(options, name) for word in (option, value)]
    if options.profile is not None:
        words += ["--profile", options.profile]
    if not options.preload_known:
        words.append("--no-preload")
    return shlex.join(words)
