"""A requirement as a user writes it: ``NAME==VERSION``, or for `fetch` and `install` a bare NAME or any version specifier.

Source of the rules: "Dependency specifiers" and "Version specifiers" of the PyPA specifications (PEP 508, PEP 440).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from relink.system.errors import UsageError

__all__ = ["WantedWheel", "parse_requirement"]

_EXACT = re.compile(r"={2,3}[^*,]+")


@dataclass(frozen=True, slots=True)
class WantedWheel:
    """What is to be fetched.

    :ivar name: as written.
    :ivar extras: as written, with brackets; empty without any. They matter when dependencies are installed.
    """

    name: str
    extras: str
    specifier: SpecifierSet

    @property
    def canonical(self) -> NormalizedName:
        """The normalised name (PEP 503)."""
        return canonicalize_name(self.name)

    @property
    def text(self) -> str:
        """The requirement without its extras, as pip takes it."""
        return f"{self.name}{self.specifier}"


def parse_requirement(text: str, *, exact: bool = False) -> WantedWheel:
    """Take a requirement apart.

    :param exact: it must name one version, since a typing error in a bare name would fetch a stranger's package.
    :raises UsageError: it is none, or one that relink does not fetch.
    """
    try:
        parsed = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        raise UsageError(f"{text!r} is not a requirement: write it like NAME==VERSION") from error
    if parsed.url or parsed.marker:
        raise UsageError(
            f"{text!r}: a requirement with a URL or an environment marker is not fetched; write it like NAME==VERSION, "
            "or download the wheel and pass its path"
        )
    if exact and not _EXACT.fullmatch(str(parsed.specifier)):
        raise UsageError(
            f"{text!r} does not name one version; write it like {parsed.name}==VERSION, or let `relink fetch` choose one"
        )
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return WantedWheel(parsed.name, extras, parsed.specifier)
