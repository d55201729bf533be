"""What a result relies on beside the wheel: other packages in its site-packages, and how METADATA says so.

Source of the words: "Core metadata" and "Dependency specifiers" of the PyPA specifications, PEP 440 for versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from packaging.version import Version

__all__ = ["ChangedRequirement", "Reliance", "metadata_lines"]


@dataclass(frozen=True, slots=True)
class ChangedRequirement:
    """A Requires-Dist of METADATA that the output has not, or has another one in the place of.

    :ivar before: as the vendor's wheel spells it; `after`: None where it is taken out.
    """

    before: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Reliance:
    """Another package in site-packages that members rely on.

    :ivar name: of the distribution; `version`: the one that was there.
    :ivar directories: in site-packages, those that search paths of members lead to; none where only its own libraries do.
    :ivar files: in site-packages, the libraries that are taken of a package that is no provider, but one that the wheel comes
        after, or whose directory its vendor wrote into a search path.
    """

    name: str
    version: str
    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def requirement(reliance: Reliance) -> str:
    """Return the requirement of a package: its series, and where it is a pre-release the later ones of that series.

    Installers take a pre-release only where a requirement names one (PEP 440, "Handling of pre-releases").
    """
    try:
        version = Version(reliance.version)
    except ValueError:
        return reliance.name
    if version.is_prerelease:
        return f"{reliance.name}>={version.public},<{version.major}.{version.minor + 1}"
    return f"{reliance.name}=={version.major}.{version.minor}.*"


def metadata_lines(
    relies_on: Iterable[Reliance], extra: str | None, bundle: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the fields of METADATA that say what a result relies on: as an extra, or required.

    What the vendor's wheel relied on before is the vendor's to say.

    :param extra: what brings the packages; None: installing the wheel installs them, too.
    :param bundle: package → the requirement without a version that brings it, and others with it.
    """
    names = ((item, (bundle or {}).get(item.name, item.name)) for item in relies_on if not item.files)
    wanted = list(dict.fromkeys(requirement(replace(item, name=name)) for item, name in names))
    if not wanted:
        return ()
    if extra is None:
        return tuple(f"Requires-Dist: {item}" for item in wanted)
    return (f"Provides-Extra: {extra}", *(f'Requires-Dist: {item}; extra == "{extra}"' for item in wanted))
