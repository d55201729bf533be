"""The libraries that relink puts into a wheel beside its own members: stubs, which it writes, and grafts, which it copies."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relink.elf.stub import StubFunction, build_stub
from relink.errors import UsageError
from relink.plans.files import FilePlan

__all__ = [
    "GRAFT_DIRECTORY",
    "LICENCE_DIRECTORY",
    "STUB_DIRECTORY",
    "Graft",
    "LicenceFacts",
    "Stub",
    "check_places",
    "is_plain",
]

STUB_DIRECTORY: Final = "relink-stubs"
"""The name of the directory that has a wheel's stubs, and nothing else, so that it can be the last of a search path."""
GRAFT_DIRECTORY: Final = "relink-grafts-"
"""What the name of the directory that has a wheel's grafts begins with; 8 hexadecimal digits of their contents follow."""
LICENCE_DIRECTORY: Final = "licenses/relink-grafts"
"""Where in the dist-info directory the licences of grafts lie (PEP 639 puts all licences into ``licenses``)."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}")
_DIRECTORY = re.compile(rf"{STUB_DIRECTORY}|{GRAFT_DIRECTORY}[0-9a-f]{{8}}")


@dataclass(frozen=True, slots=True)
class Stub:
    """A library that relink writes, whose functions refuse (:mod:`relink.elf.stub`).

    :ivar path: its member in the output.
    :ivar versions: the version nodes that it defines.
    :ivar why: why there is a stub in place of the library.
    """

    path: str
    soname: str
    why: str
    functions: tuple[StubFunction, ...] = ()
    versions: tuple[str, ...] = ()

    def content(self) -> bytes:
        """Return the library's bytes: the same for the same plan.

        :raises UsageError: there can be no such library: the plan is not one that relink made.
        """
        try:
            return build_stub(self.soname, self.functions, self.versions)
        except (ValueError, struct.error) as error:  # names that no file can have, or too many
            raise UsageError(f"{self.path}: the plan has a stub that cannot be written") from error


@dataclass(frozen=True, slots=True)
class LicenceFacts:
    """What is known of the licence of a file in a prefix.

    :ivar package: the package that the file is taken to be of, by its name.
    :ivar file: where the licence's text is, as the target sees it; None where none was found.
    :ivar names: of the licences, as the text has them; empty where the text names none in a form that is read.
    :ivar sha256: of the text, hex.
    """

    package: str | None = None
    file: str | None = None
    names: tuple[str, ...] = ()
    sha256: str | None = None

    def member(self, soname: str) -> str | None:
        """Return where the text lies in the dist-info directory, or None where there is none."""
        return f"{LICENCE_DIRECTORY}/{soname}/{self.file.rpartition('/')[2]}" if self.file else None


@dataclass(frozen=True, slots=True)
class Graft:
    """A library of a second provider that is copied into the wheel.

    :ivar path: its member in the output.
    :ivar source: the file that it is copied from, as the target sees it.
    :ivar sha256: of that file, hex; `size`: its bytes.
    :ivar provider: the path of the second provider.
    :ivar file: what is edited in the copy, and what serves each NEEDED of it.
    """

    path: str
    soname: str
    source: str
    sha256: str
    size: int
    provider: str
    licence: LicenceFacts
    file: FilePlan


def is_plain(name: str) -> bool:
    """Whether a name is one of a file, without a directory and without what a search path or a shell would understand."""
    return _PLAIN.fullmatch(name) is not None


def check_places(additions: Sequence[Stub | Graft]) -> None:
    """Check that stubs and grafts are where relink puts them: a plan may be one that somebody else wrote.

    :raises UsageError: one is not.
    """
    for item in additions:
        top, _, rest = item.path.partition("/")
        directory, _, name = rest.partition("/")
        kind = "graft" if isinstance(item, Graft) else "stub"
        known = _DIRECTORY.fullmatch(directory) is not None and (directory == STUB_DIRECTORY) == (
            kind == "stub"
        )
        wrong = not (known and is_plain(top) and top.endswith(".libs") and is_plain(name))
        member = item.licence.member(item.soname) if isinstance(item, Graft) else None
        wrong_licence = member is not None and not is_plain(member.rpartition("/")[2])
        if wrong or wrong_licence or name != item.soname:
            raise UsageError(f"{item.path}: the plan has a {kind} there, and relink writes none there")
