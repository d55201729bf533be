"""ROCm as pip installs it, as a provider: the packages of one site-packages, recognised by their metadata.

Source: ROCm/TheRock, docs/packaging/python_packaging.md and build_tools/build_python_packages.py: ``rocm-sdk-core`` and
``rocm-sdk-libraries`` (or ``rocm-sdk-libraries-FAMILY``) have a directory each, called as the distribution with ``_`` before it
and perhaps a nonce behind; ``rocm-sdk-device-GPU`` has files in the directory of the libraries. All lie in one site-packages,
since their search paths lead from one to the other by ``$ORIGIN``. Two more have libraries that others link to:
``rocm-profiler`` (the same source), and ``migraphx-libs``, which AMD's page on installing MIGraphX names: its libraries lie in
``migraphx_libs``, and its version has that of ROCm behind it, ``2.17.0+rocm10.0.0``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from relink.loader.target import Target
from relink.providers.prefix import InstalledPackage, Provider, read_directories, soname_stem
from relink.providers.site_packages import SITE_PACKAGES, canonical, distributions, names_in, series
from relink.system.errors import ProviderError
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated

__all__ = [
    "SitePackages",
    "bundles",
    "find_site",
    "is_distribution",
    "is_package",
    "open_site",
    "packages_of",
    "preload_lines",
    "site_findings",
]

_CORE, _LIBRARIES = "rocm-sdk-core", "rocm-sdk-libraries"
_MORE = {"rocm-profiler": "lib", "migraphx-libs": ""}  # and where their libraries lie, in their directory
_INFO = re.compile(
    r"(rocm(?:[-_.](?:sdk[-_.][A-Za-z0-9_.]+|profiler))?|migraphx[-_.]libs)-([^-]+)\.dist-info", re.IGNORECASE
)
_DISTRIBUTION = re.compile(r"rocm(?:-sdk-.+|-profiler|-bootstrap)?|migraphx-libs")
_DIRECTORY = re.compile(r"_rocm_(?:sdk|profiler)\w*|migraphx_libs", re.ASCII)
_LABEL = re.compile(r"rocm(\d+(?:\.\d+)*)")
_PYTHON = re.compile(r"python3(?:\.\d+t?)?")
_CORE_DIRECTORIES = ("lib", "lib/host-math/lib", "lib/llvm/lib", "lib/rocm_sysdeps/lib")
_SHORT = {"MIOpen": "miopen"}  # where TheRock's short name is another


@dataclass(frozen=True, slots=True)
class SitePackages:
    """The ROCm that a site-packages has.

    :ivar path: the site-packages, as the target sees it.
    :ivar packages: every distribution of ROCm in it, by name.
    """

    path: str
    packages: tuple[InstalledPackage, ...]

    @property
    def libraries(self) -> tuple[InstalledPackage, ...]:
        """The distributions that have libraries for computing: a neutral one, or one for each family of GPUs."""
        return tuple(item for item in self.packages if canonical(item.name).startswith(_LIBRARIES))

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that a device package is installed for."""
        start = "rocm-sdk-device-"
        names = (canonical(item.name) for item in self.packages)
        return tuple(name.removeprefix(start) for name in names if name.startswith(start))

    @property
    def strangers(self) -> tuple[InstalledPackage, ...]:
        """Those that were not built with ``rocm-sdk-core``: of another version, or labelled for another series of ROCm."""
        core = next(item for item in self.packages if canonical(item.name) == _CORE)
        return tuple(item for item in self.packages if not _belongs_to(item, core))


def is_package(name: str) -> bool:
    """Whether a directory in site-packages is called as those of ROCm's packages are."""
    return _DIRECTORY.fullmatch(name) is not None


def is_distribution(name: str) -> bool:
    """Whether a distribution is one of ROCm's, or ``rocm-bootstrap``, which chooses those with device code for a GPU."""
    return _DISTRIBUTION.fullmatch(canonical(name)) is not None


def bundles() -> dict[str, str]:
    """Return what brings the packages that most wheels need, as AMD's own wheels require it."""
    return dict.fromkeys((_CORE, _LIBRARIES), "rocm[libraries]")


def find_site(path: str, target: Target) -> str | None:
    """Return the site-packages with ``rocm-sdk-core`` that a user may mean by `path`, or None.

    It may be a virtual environment, a site-packages, or a directory of ROCm in one (``rocm-sdk path --root`` prints such).
    Of an environment with several Pythons it is that of the target's.
    """
    absolute = posixpath.abspath(path)
    if target.sysroot != "/" and absolute.startswith(target.sysroot + "/"):
        absolute = absolute[len(target.sysroot) :]
    places = [absolute]
    if is_package(posixpath.basename(absolute)):
        places.append(posixpath.dirname(absolute))
    inside = [
        posixpath.join(absolute, lib, name, packages)
        for lib in ("lib", "lib64")
        for name in names_in(posixpath.join(absolute, lib), target)
        if _PYTHON.fullmatch(name)
        for packages in ("site-packages", "dist-packages")
    ]
    facts = target.python_facts
    own = f"/python3.{facts.version[1]}/" if facts is not None else "/"
    places += sorted(inside, key=lambda place: own not in place)
    return next((place for place in places if any(_packages(place, target, _CORE))), None)


def open_site(path: str, target: Target, gpus: Sequence[str] = ()) -> Provider:
    """Read what the ROCm of a site-packages provides to `target`.

    Of several packages of libraries the neutral one is taken, else that for one of `gpus`, else the first.

    :param path: as :func:`find_site` returns it.
    :param gpus: the GPUs that the user asks for (``gfx1100``).
    :raises ProviderError: there is no library for the target in it.
    """
    site = SitePackages(path, packages_of(path, target))
    chosen = [item for item in site.packages if canonical(item.name) == _CORE]
    chosen += sorted(site.libraries, key=lambda item: _rank(item, gpus))[:1]
    directories = [f"{item.directory}/lib" for item in chosen if item.directory]
    core = chosen[0].directory
    directories += [f"{core}/{place}" for place in _CORE_DIRECTORIES[1:] if core]
    more = [item for item in site.packages if canonical(item.name) in _MORE and item.directory]
    directories += [posixpath.normpath(f"{item.directory}/{_MORE[canonical(item.name)]}") for item in more]
    provider = read_directories(SITE_PACKAGES, path, directories, target)
    if not provider.libraries:
        raise ProviderError(
            f"{path}: {_CORE} is installed there, and no library of it can be loaded by the target; install it again",
            [f"{found.path}: {found.reason}" for found in provider.skipped[:10]],
        )
    return replace(provider, packages=(*chosen, *more))


def packages_of(path: str, target: Target) -> tuple[InstalledPackage, ...]:
    """Return the distributions of ROCm in a site-packages, by name."""
    return tuple(_packages(path, target))


def site_findings(
    provider: Provider, sonames: Iterable[str], target: Target, gpus: Sequence[str]
) -> Iterator[Finding]:
    """Yield what is to be said about the packages of ROCm in a site-packages: versions, families and devices.

    :param sonames: the libraries that the members load.
    :param gpus: those that the user asks for.
    """
    site = SitePackages(provider.path, packages_of(provider.path, target))
    versions = ", ".join(f"{item.name} {item.version}" for item in site.packages)
    if strangers := site.strangers:
        core = next(item for item in site.packages if item not in strangers and item.directory)
        same = [
            item for item in strangers if "+rocm" not in item.version
        ]  # the others have versions of their own
        step = "pip install " + " ".join(f"{item.name}=={core.version}" for item in same) if same else None
        yield finding("RLK531", site.path, f"they do not belong together: {versions}", step=step)
    taken = next((item for item in provider.packages if item in site.libraries), None)
    if taken is not None and len(site.libraries) > 1:
        names = join_truncated([item.name for item in site.libraries])
        yield finding("RLK532", site.path, f"{names} are installed; {taken.name} is taken")
    uses = taken is not None and any(
        provider.libraries[soname][0].startswith(f"{site.path}/{taken.directory}/")
        for soname in sonames
        if soname in provider.libraries
    )
    # With a GPU named, the coverage of its code says more exactly what is missing.
    if taken is not None and uses and not gpus and family_of(taken) is None and not site.devices:
        text = f"{taken.name} {taken.version} has no code for a GPU by itself, and no rocm-sdk-device-… is installed"
        remedy = f"Install the package for the GPU, such as rocm-sdk-device-gfx1100=={taken.version}."
        yield finding("RLK533", site.path, text, remedy)


def preload_lines(sonames: Iterable[str]) -> str:
    """Return the statements of Python that map libraries of ROCm before others ask for them by their sonames.

    TheRock's ``rocm_sdk`` has short names for them (templates/rocm/src/rocm_sdk/_dist_info.py: the soname without ``lib`` and
    ``.so``).
    """
    stems = (soname_stem(soname).removeprefix("lib").removesuffix(".so") for soname in sonames)
    names = ", ".join(f'"{_SHORT.get(stem, stem)}"' for stem in stems)
    return f"import rocm_sdk; rocm_sdk.initialize_process(preload_shortnames=[{names}])"


def family_of(package: InstalledPackage) -> str | None:
    """Return the family of GPUs that a package of libraries is for, ``gfx110X-all``; None: the package is neutral."""
    return canonical(package.name).removeprefix(_LIBRARIES).lstrip("-") or None


def _rank(package: InstalledPackage, gpus: Iterable[str]) -> tuple[bool, bool, str]:
    family = family_of(package)
    start = re.sub(r"x(?:-.*)?$", "", family or "")
    fits = any(gpu.partition(":")[0].lower().startswith(start) for gpu in gpus)
    return family is not None, not fits, package.name


def _belongs_to(package: InstalledPackage, core: InstalledPackage) -> bool:
    label = _LABEL.match(package.version.partition("+")[2])
    if label:
        return series(label[1]) == series(core.version)
    return package.version == core.version


def _packages(site: str, target: Target, only: str | None = None) -> Iterator[InstalledPackage]:
    return distributions(site, target, only, _INFO, is_package)
