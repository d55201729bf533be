"""Advice for words of a command line, or keys of a settings file, that relink does not know: misspelt, or removed."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import Final

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"  # PEP 508
_EXACT = re.compile(rf"{_NAME}\s*(?:\[[^\]]*\])?\s*===?\s*[^\s/]+")
_BARE = re.compile(_NAME)
_EACH_BUILD = "each build of a package with autoRelinkHook plans anew and says what does not fit; `relink nix` writes the package"
REMOVED_OPTIONS: Final = {
    "--lock": _EACH_BUILD,
    "--lock-strict": _EACH_BUILD,
    "--rocm-major": "package.nix is for the ROCm that the wheel needs, and is broken with another",
    "--fix": "after a refusal relink prints a command that was tried and has no error. Run that one, or pass the option that a "
    "finding names, such as --preload SONAME",
    "--statement": "relink.json and the SBOM in the wheel say what the wheel was made of. To sign where the wheel comes from, "
    "let the platform that runs relink attest the wheel (actions/attest-build-provenance on GitHub)",
}
"""Options of earlier releases that relink has no more, each with what to do instead."""
# The least ratio of difflib: one letter of four may be another.
_CLOSE = 0.75


def removed_option_message(option: str) -> str | None:
    """Return the message about an option of an earlier release, with what to do instead; None for any other option.

    :param option: as on the command line: ``--statement``.
    """
    advice = REMOVED_OPTIONS.get(option)
    return advice and f"{option} was removed from relink: {advice}."


def is_requirement(word: str) -> bool:
    """Whether a word is a requirement that names a version, ``NAME==VERSION``, and no file of that name is there."""
    return _EXACT.fullmatch(word) is not None and not os.path.lexists(word)


def unknown_word(word: str, commands: Iterable[str]) -> str | None:
    """Return what is wrong with the first word of a command line; None where it may be a wheel.

    A file that is there comes first, then a requirement with a version, then a command that is spelled almost so.
    """
    if os.path.lexists(word) or is_requirement(word) or word.startswith("-") or not _BARE.fullmatch(word):
        return None
    if word.lower().endswith(".whl"):
        # Opening the wheel says that it is not there.
        return None
    if word == "help":
        return "No such command or file: help. `relink --help` lists the commands, and `relink COMMAND --help` is about one."
    if close := difflib.get_close_matches(word.lower(), [*commands], n=1, cutoff=_CLOSE):
        return f"No such command or file: {word}. Did you mean `relink {close[0]}`?"
    if "." in word:
        return None
    return (
        f"No such command or file: {word}. A package is fetched by `relink fetch {word}` or `relink install {word}`, or as "
        f"'{word}==VERSION'."
    )
