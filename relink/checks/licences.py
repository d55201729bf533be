"""The licence of a library in a prefix: which package it is of, where the package's licence text lies, and what that allows.

Takes a soname and a prefix; gives :class:`~relink.plans.additions.LicenceFacts`. Distributions keep the text at a place of
their own: Debian in ``share/doc/PACKAGE/copyright`` (Debian Policy 12.5; its form is that of DEP 5), Fedora and Arch in
``share/licenses/PACKAGE``, AMD in ``share/doc/COMPONENT``. The package's name follows from the soname (Debian Policy 8.1), or is
in the table of ROCm.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from relink.files import read_bytes
from relink.loader.files import resolve_inside
from relink.plans.additions import LicenceFacts, is_plain
from relink.rocm.facts import who_has
from relink.system_errors import raise_trouble

__all__ = ["FORBIDDEN", "LICENCE_LIMIT", "licence_names", "licence_of", "why_not_copied"]

LICENCE_LIMIT: Final = 4 << 20
"""Bytes of a licence text that is read; Debian's longest has 0.3 MB."""

FORBIDDEN: Final = {
    "GPL-*": "a wheel that has a copy would have to be under the GPL as a whole",
    "AGPL-*": "a wheel that has a copy would have to be under the AGPL as a whole",
    "SSPL-*": "it asks for more than a wheel can give",
    "CC-BY-NC*": "it allows no commercial use",
    "*EULA*": "an end user's licence does not allow copies to be passed on",
    "*proprietary*": "it is proprietary",
    "*non-free*": "it is not free to be passed on",
    "*non-redistributable*": "it may not be passed on",
}
"""Licences, as globs of their names in lower or upper case, whose libraries are not copied into a wheel, each with the reason."""

_PHRASES: Final = {
    "end user license agreement": "an end user's licence does not allow copies to be passed on",
    "may not be redistributed": "it may not be passed on",
    "not be copied or distributed": "it may not be passed on",
}
# In texts that name no licence in a form that is read.

_TEXT = re.compile(r"(?:copyright|licen[cs]e.*|copying.*)", re.IGNORECASE)
_EXCEPTION = re.compile(r"with.*exception", re.IGNORECASE)
_FILES = re.compile(r"^Files\s*:(?P<value>(?:.*\n(?:[ \t]+\S.*\n)*))", re.IGNORECASE | re.MULTILINE)
_LICENSE = re.compile(r"^License\s*:\s*(?P<value>\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_NAME_LIMIT = 200


def licence_of(soname: str, prefix: str, sysroot: str = "/") -> LicenceFacts:
    """Return what a prefix says of the licence of the library with that soname.

    :param prefix: as the target sees it.
    """
    for package in _packages(soname):
        for place in (f"share/doc/{package}", f"share/licenses/{package}"):
            directory = posixpath.join(prefix, place)
            for name in _texts(directory, sysroot):
                path = posixpath.join(directory, name)
                try:
                    content = read_bytes(resolve_inside(sysroot, path), LICENCE_LIMIT)
                except OSError as error:
                    raise_trouble(error, path)
                    continue
                names = licence_names(content.decode("utf-8", "replace"))
                return LicenceFacts(package, path, names, hashlib.sha256(content).hexdigest())
    return LicenceFacts()


def licence_names(text: str) -> tuple[str, ...]:
    """Return the names of the licences of a package's files, as its text has them; nothing where it has no such form.

    In DEP 5 the paragraph of ``Files: *`` speaks for what is compiled; where there is none, each paragraph of files but that of
    the packaging (``debian/*``) does. Elsewhere what forbids a copy is looked for by its words.
    """
    paragraphs = re.split(r"\n(?:[ \t]*\n)+", text.replace("\r\n", "\n") + "\n\n")
    stated: dict[str, list[str]] = {}
    for paragraph in paragraphs:
        files, licence = _FILES.search(paragraph + "\n"), _LICENSE.search(paragraph)
        if files and licence:
            stated.setdefault(" ".join(files["value"].split()), []).append(licence["value"][:_NAME_LIMIT])
    speaking = stated.get("*") or [
        name for files, names in stated.items() if not files.startswith("debian/") for name in names
    ]
    if speaking:
        return tuple(dict.fromkeys(speaking))
    plain = " ".join(text.lower().split())
    return tuple(phrase for phrase in _PHRASES if phrase in plain)


def why_not_copied(licence: LicenceFacts) -> str | None:
    """Return why a licence does not allow a copy of the library in a wheel, or None. What is not known allows it."""
    for expression in licence.names:
        if reason := _forbidden(expression):
            return f"its licence, {expression}, is one that forbids it: {reason} ({licence.file})"
    return None


def _forbidden(expression: str) -> str | None:
    """Why none of the licences that may be chosen (``or``) allows it; of those that hold together (``and``) each has to."""
    reasons = [_of_all(part) for part in re.split(r"\s+or\s+", expression, flags=re.IGNORECASE)]
    return next(filter(None, reasons), None) if all(reasons) else None


def _of_all(expression: str) -> str | None:
    for name in re.split(r"\s+and\s+|,", expression, flags=re.IGNORECASE):
        plain = name.strip().lower()
        if plain in _PHRASES:
            return _PHRASES[plain]
        if _EXCEPTION.search(plain):  # of a linker or compiler: written for what is linked with it
            continue
        for pattern, reason in FORBIDDEN.items():
            if fnmatch.fnmatchcase(plain, pattern.lower()) or plain == pattern.lower().removesuffix("-*"):
                return reason
    return None


def _packages(soname: str) -> Iterator[str]:
    """Yield the names that the package of a library may have, the most certain first."""
    component = who_has(soname)
    if component is not None and soname in component.debian:
        yield component.debian[soname]
    stem, _, version = soname.partition(".so")
    name, version = stem.lower().replace("_", "-"), version.lstrip(".")
    for number in dict.fromkeys((version, version.partition(".")[0])):
        dash = "-" if number and name[-1:].isdigit() else ""
        for package in (f"{name}{dash}{number}", f"{name}-{number}", f"{name}{dash}{number}t64"):
            if is_plain(package):
                yield package
    for package in (stem, name, name.removeprefix("lib"), *((component.name,) if component else ())):
        if is_plain(package):
            yield package


def _texts(directory: str, sysroot: str) -> list[str]:
    """The licence texts of a directory, Debian's ``copyright`` first."""
    try:
        names = os.listdir(resolve_inside(sysroot, directory))
    except OSError as error:
        raise_trouble(error, directory)
        return []
    return sorted(
        (one for one in names if _TEXT.fullmatch(one) and is_plain(one)),
        key=lambda one: (one != "copyright", one),
    )
