"""Which sibling packages a wheel comes after: what its METADATA requires, or its packages import, and where that is installed.

Takes a wheel and the target. Gives :class:`~relink.planning.resolve.siblings.Sibling`. Nothing of the wheel and of the sibling
is run.
Source of the rules: "Core metadata" and "Dependency specifiers" of the PyPA specifications.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from relink.loader.seen_files import Files
from relink.loader.target import Target
from relink.planning.reading import Wheel
from relink.planning.resolve.siblings import Sibling
from relink.providers.profiles import Profile, shipped_profiles
from relink.wheel.metadata import read_metadata

__all__ = ["find_siblings"]

_MODULE_LIMIT = 1 << 20  # bytes of a package's __init__.py that are looked at


def find_siblings(wheel: Wheel, target: Target, files: Files) -> tuple[Sibling, ...]:
    """Return the packages whose import maps libraries that members of `wheel` need and that the wheel says it needs."""
    own = canonicalize_name(wheel.archive.name.distribution)
    names = {posixpath.basename(member) for member in wheel.images}
    needed = {
        name: member for member, image in wheel.images.items() for name in image.needed if name not in names
    }
    found = []
    for profile in (item for item in shipped_profiles().values() if needed and item.imports):
        wanted = {soname: member for soname, member in needed.items() if profile.where_brought(soname)}
        if not wanted or own in profile.distributions:
            continue
        why = next(_evidence(wheel, profile, wanted.values()), None)
        if why is not None:
            found.append(_located(Sibling(profile, why), wanted, target, files))
    return tuple(found)


def _evidence(wheel: Wheel, profile: Profile, members: Collection[str]) -> Iterator[str]:
    """Yield how the wheel says that it needs a package: a requirement without an extra, or an import of its packages."""
    archive = wheel.archive
    for text in read_metadata(archive.read(f"{archive.dist_info}/METADATA")).requires_dist:
        try:
            requirement = Requirement(text)
            optional = requirement.marker is not None and "extra" in str(requirement.marker)
        except (InvalidRequirement, RecursionError):  # a marker in thousands of brackets
            continue
        if not optional and canonicalize_name(requirement.name) in profile.distributions:
            yield f"METADATA requires {requirement.name}"
    for package in dict.fromkeys(member.split("/")[0] for member in members):
        module = f"{package}/__init__.py"
        if module not in archive.members:
            continue
        text = archive.prefix(module, _MODULE_LIMIT).decode("utf-8", "replace")
        for name in profile.imports:
            if re.search(rf"^(?:import|from)[ \t]+{re.escape(name)}\b", text, re.MULTILINE):
                yield f"{module} imports {name}"


def _located(sibling: Sibling, wanted: Mapping[str, str], target: Target, files: Files) -> Sibling:
    """Return the sibling with the directory that the target's Python imports it from, and its libraries."""
    places = target.python_facts.site_packages if target.python_facts is not None else ()
    package = sibling.profile.imports[0].split(".")[0]
    for place in places:
        if files.is_directory(posixpath.join(place, package)):
            libraries = {}
            for soname in sorted(wanted):
                glob = sibling.profile.where_brought(soname) or soname
                path = posixpath.join(place, posixpath.dirname(glob), soname)
                if files.open(path).image is not None:
                    libraries[soname] = path
            directory = posixpath.join(place, package)
            return Sibling(sibling.profile, sibling.why, directory, places, libraries)
    return Sibling(sibling.profile, sibling.why, None, places)
