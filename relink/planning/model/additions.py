"""The libraries that relink puts into a wheel beside its own members: stubs and forwarders, which it writes."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relink.elf.stub import StubFunction, build_stub
from relink.system.errors import UsageError

__all__ = [
    "STUB_DIRECTORY",
    "Stub",
    "check_places",
    "is_plain",
]

STUB_DIRECTORY: Final = "relink-stubs"
"""The name of the directory that has a wheel's stubs, and nothing else, so that it can be the last of a search path."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}")


@dataclass(frozen=True, slots=True)
class Stub:
    """A library that relink writes (:mod:`relink.elf.stub`): a stub, whose functions refuse, or a forwarder.

    A forwarder has no functions. It has the name that an object hands to dlopen, and needs the library under its soname:
    dlsym(3) looks in what a handle's library needs, too.

    :ivar path: its member in the output.
    :ivar versions: the version nodes that it defines.
    :ivar why: why there is a stub in place of the library.
    :ivar needed: the NEEDED of a forwarder, the library that it leads to first; `search_path` and its kind: where they are found.
    """

    path: str
    soname: str
    why: str
    functions: tuple[StubFunction, ...] = ()
    versions: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    search_path: str | None = None
    search_kind: str | None = None

    def content(self) -> bytes:
        """Return the library's bytes: the same for the same plan.

        :raises UsageError: there can be no such library: the plan is not one that relink made.
        """
        try:
            path = (self.search_kind or "runpath", self.search_path) if self.search_path else None
            return build_stub(self.soname, self.functions, self.versions, self.needed, path)
        except (ValueError, struct.error) as error:  # names that no file can have, or too many
            raise UsageError(f"{self.path}: the plan has a stub that cannot be written") from error


def is_plain(name: str) -> bool:
    """Whether a name is one of a file, without a directory and without what a search path or a shell would understand."""
    return _PLAIN.fullmatch(name) is not None


def check_places(stubs: Sequence[Stub]) -> None:
    """Check that stubs are where relink puts them: a plan may be one that somebody else wrote.

    :raises UsageError: one is not.
    """
    for stub in stubs:
        top, _, rest = stub.path.partition("/")
        known = is_plain(top) and top.endswith(".libs") and is_plain(stub.soname)
        if not known or rest != f"{STUB_DIRECTORY}/{stub.soname}":
            raise UsageError(f"{stub.path}: the plan has a stub there, and relink writes none there")
