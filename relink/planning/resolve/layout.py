"""Where an installer puts the members of a wheel, so that $ORIGIN can be followed without unpacking anything.

Source: the wheel format specification, "Recommended installer features" and the ``.data`` directory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from relink.elf.image import Image
from relink.loader.python import PythonFacts
from relink.wheel.naming import WheelName
from relink.wheel.schemes import ANY_SITE, installed_path

VIRTUAL_ROOT = "/relink.invalid"
"""A directory that exists nowhere: members stand below it while nothing is unpacked."""

WHEEL_MARK = "$WHEEL"
"""What paths below site-packages are shown as."""


_SITE = re.compile(r"\blib(?:64)?/[^/]+/(?:site|dist)-packages$")


def is_below(path: str, directory: str) -> bool:
    """Whether a path is `directory` or lies below."""
    return path == directory or path.startswith(f"{directory}/")


def find_site_directory(name: WheelName, python: PythonFacts | None) -> str:
    """Return where the site-packages is that a wheel goes into, relative to the environment's directory.

    The target's Python says so. A wheel for exactly one version of Python, and another one, goes into that of its tag.

    :param python: the Python that will load the result; None where it is not known.
    """
    exact = read_exact_version(name)
    if python is None or (exact and exact != python.directory_version):
        return f"lib/python{exact or '3'}/site-packages"
    known = _SITE.search(python.installs_into)
    return known[0] if known else f"lib/python{python.directory_version}/site-packages"


def read_exact_version(name: WheelName) -> str | None:
    """Return the version of the only Python that installs a wheel, as directories have it (``3.13t``); None for several."""
    exact = {
        f"3.{tag.interpreter[3:]}{'t' * tag.abi.endswith('t')}"
        if tag.interpreter.startswith("cp3") and tag.interpreter[3:].isdigit() and tag.abi != "abi3"
        else None
        for tag in name.tags
    }
    return exact.pop() if len(exact) == 1 else None


@dataclass(frozen=True, slots=True)
class Layout:
    """An environment that a wheel is installed into.

    :ivar root: the environment's directory (``sys.prefix``).
    :ivar site: its site-packages, relative to `root`.
    :ivar tree: members are files of a directory, `root`, and lie there by their own names.
    :ivar names: path → the one by which that file is shown, where several paths lead to it.
    :ivar links: what other packages have beside the wheel: the path in site-packages → the directory where it really is.
    """

    root: str = VIRTUAL_ROOT
    site: str = ANY_SITE
    tree: bool = False
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    links: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def python(self) -> str:
        """The version in the name of the directory of site-packages, ``3.12``; ``3`` where no Python is known."""
        return self.site.split("/")[-2].removeprefix("python")

    @property
    def site_packages(self) -> str:
        """The directory that members go to."""
        return self.root if self.tree else f"{self.root}/{self.site}"

    def path_of(self, member: str) -> str:
        """Return the absolute path at which `member` will be installed."""
        return posixpath.join(self.root, member if self.tree else installed_path(member, self.site))

    def on_disk(self, images: Mapping[str, Image]) -> dict[str, tuple[str, str]]:
        """Return soname and path of the libraries among the members, where members are files of a tree."""
        members = images.items() if self.tree else ()
        return {member: (image.soname, self.path_of(member)) for member, image in members if image.soname}

    def real(self, path: str) -> str:
        """Return the real path of a file that another package has; other paths unchanged."""
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
        """The start of the paths of members in messages; the files of a tree have real paths."""
        return f"{self.root if self.tree else WHEEL_MARK}/"

    def shown(self, text: str) -> str:
        """Return `text`, a path or a sentence, with $WHEEL and $PREFIX for this layout's directories."""
        text = self.names.get(text, text)
        if self.links:
            paths = re.compile(rf"{re.escape(self.root)}/[^\s:;,()]*")
            text = paths.sub(lambda match: self.real(match[0]), text)
        if self.tree:
            return text
        # site-packages lie below the root, so they are replaced first.
        return text.replace(self.site_packages, WHEEL_MARK).replace(self.root, "$PREFIX")
