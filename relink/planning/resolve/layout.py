"""Where an installer puts the members of a wheel, so that $ORIGIN can be followed without unpacking anything.

Source: the wheel format specification, "Recommended installer features" and the ``.data`` directory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from relink.elf.image import Image

VIRTUAL_ROOT = "/relink.invalid"
"""A directory that exists nowhere: members stand below it while nothing is unpacked."""

WHEEL_MARK = "$WHEEL"
"""What paths below site-packages are shown as."""


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory, or lies in it."""
    return path == directory or path.startswith(f"{directory}/")


@dataclass(frozen=True, slots=True)
class Layout:
    """An environment that a wheel is installed into.

    :ivar root: the environment's directory (``sys.prefix``).
    :ivar python: the version in its directory name, ``"3.12"``.
    :ivar tree: members are files of a directory, `root`, and lie there by their own names.
    :ivar names: path → the one by which that file is shown, where several paths lead to it.
    :ivar links: what other packages have beside the wheel: the path in site-packages → the directory where it really is.
    """

    root: str = VIRTUAL_ROOT
    python: str = "3"
    tree: bool = False
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    links: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def site_packages(self) -> str:
        """The directory that members go to."""
        return self.root if self.tree else f"{self.root}/lib/python{self.python}/site-packages"

    def path_of(self, member: str) -> str:
        """Return the absolute path at which `member` will be installed."""
        first, _, rest = member.partition("/")
        # The directory is called {distribution}-{version}.data. Below it are the directories of the schemes.
        if not self.tree and first.endswith(".data") and "-" in first and "/" in rest:
            scheme, _, inner = rest.partition("/")
            if scheme in ("purelib", "platlib"):
                return posixpath.join(self.site_packages, inner)
            return posixpath.join(self.root, {"scripts": "bin", "headers": "include"}.get(scheme, ""), inner)
        return posixpath.join(self.site_packages, member)

    def on_disk(self, images: Mapping[str, Image]) -> dict[str, tuple[str, str]]:
        """Return soname and path of the libraries among the members, where members are files of a tree."""
        members = images.items() if self.tree else ()
        return {member: (image.soname, self.path_of(member)) for member, image in members if image.soname}

    def real(self, path: str) -> str:
        """Return where the file of a path in this layout really is, if another package has it; else the path as it is."""
        normal = posixpath.normpath(path)
        for entry, directory in self.links.items():
            beside = f"{self.site_packages}/{entry}"
            if is_below(normal, beside):
                return directory + normal[len(beside) :]
        return path

    def origin_entry(self, directory: str, member: str) -> str:
        """Return the search path entry by which `member` finds a directory: by ``$ORIGIN`` where both move together.

        :param directory: where it really is.
        """
        if self.tree and f"{directory}/".startswith(f"{self.root}/"):
            relative = posixpath.relpath(directory, posixpath.dirname(self.path_of(member)))
            return f"$ORIGIN/{relative}".removesuffix("/.")
        for entry, linked in self.links.items():
            if is_below(directory, linked):
                beside = f"{self.site_packages}/{entry}{directory[len(linked) :]}"
                return f"$ORIGIN/{posixpath.relpath(beside, posixpath.dirname(self.path_of(member)))}"
        return directory

    @property
    def own(self) -> str:
        """What the paths of members begin with as they are shown; the files of a tree have their own."""
        return f"{self.root if self.tree else WHEEL_MARK}/"

    def shown(self, text: str) -> str:
        """Return `text`, a path or a sentence, with this layout's paths replaced by what a reader knows."""
        text = self.names.get(text, text)
        if self.links:
            paths = re.compile(rf"{re.escape(self.root)}/[^\s:;,()]*")
            text = paths.sub(lambda match: self.real(match[0]), text)
        if self.tree:
            return text
        # site-packages lie below the root, so they are replaced first.
        return text.replace(self.site_packages, WHEEL_MARK).replace(self.root, "$PREFIX")
