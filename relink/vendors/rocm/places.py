"""Where a ROCm lies, and which release a place holds: a prefix, or the packages of one site-packages, as pip installs it.

A prefix is ``$ROCM_PATH``, what modules of a supercomputer set beside it (``CRAY_ROCM_PREFIX``, LD_LIBRARY_PATH), ``/opt/rocm*``,
``/opt/rocm/core-*``, one of ld.so.cache, or ``/usr``. Directories and the cache are read. No program is run: ``hipconfig`` would
be one of a ROCm that nobody has chosen yet.

Source for pip's: ROCm/TheRock, docs/packaging/python_packaging.md and build_tools/build_python_packages.py: ``rocm-sdk-core`` and
``rocm-sdk-libraries`` (or ``rocm-sdk-libraries-FAMILY``) have a directory each, called as the distribution with ``_`` before it
and perhaps a nonce behind; ``rocm-sdk-device-GPU`` has files in the directory of the libraries. All lie in one site-packages,
since their search paths lead from one to the other by ``$ORIGIN``. Two more have libraries that others link to:
``rocm-profiler`` (the same source), and ``migraphx-libs``, which AMD's page on installing MIGraphX names: its libraries lie in
``migraphx_libs``, and its version has that of ROCm behind it, ``2.17.0+rocm10.0.0``.

No document of AMD's says where a release is recorded, and packages differ, so several files are read, the most exact first:
``.info/version``, headers, TheRock's manifest, a distribution's changelog, names. Since ROCm 10.0 HIP has a version of its own,
7.15, so it comes last, through a table, and the evidence says that the release is inferred.
"""

from __future__ import annotations

import os
import posixpath
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from relink.gpu.amd.target_id import table
from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target, lookup
from relink.providers.nix_store import open_place, version_in_store_path
from relink.providers.prefix import (
    NIX_STORE,
    SITE_PACKAGES,
    InstalledPackage,
    Provider,
    find_link_target,
    list_main_directories,
    list_names_in,
    major_minor,
    read_directories,
    read_distributions,
    soname_stem,
)
from relink.system.errors import ProviderError, RelinkError, SeveralPlacesError
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import read_start
from relink.system.text import join_truncated, join_with_and
from relink.vendors.protocol import Place, Release
from relink.vendors.rocm.facts import ROCM, is_own, is_runtime, release_of_hip

# Libraries that every ROCm has and nothing else does.
_RUNTIME = re.compile(r"lib(?:amdhip64|hsa-runtime64)\.so\.\d+")

_CORE_NAME = re.compile(r"core-.*\d+\.\d+")
# HPE's modules (rocm/6.2.4 of its programming environment) set all of these to one directory; other modules set the first.
_VARIABLES = ("ROCM_PATH", "CRAY_ROCM_PREFIX", "CRAY_ROCM_DIR")
_LIBRARY_PATH = "LD_LIBRARY_PATH"
# What modules that bring a ROCm are called: rocm/6.2.4, amd/6.2.4, amd-mixed/6.2.4, afar-rocm/7.0, ROCm/6.4.1.
_MODULE = re.compile(r"(?:.*/)?(?:.*rocm.*|amd(?:-mixed)?)/(?P<version>[^/]+)", re.IGNORECASE)


def find_places(target: Target, environment: Mapping[str, str], near: str | None = None) -> tuple[Place, ...]:
    """Return every ROCm of the target, each directory of libraries once; that of the variables alone where they name one.

    What $ROCM_PATH names is not looked at: whoever opens it says what is wrong with it.

    :param near: a directory. Then every ROCm is found, also what a variable hides and what is called like one in the directory
        or beside it, and each by its real directory.
    """
    named = find_named(environment)
    if near is not None:
        around = (
            Place(posixpath.join(directory, name), directory)
            for directory in (near, posixpath.dirname(near))
            for name in sorted(list_names_in(directory, target.sysroot))
            if name.startswith("rocm") or _CORE_NAME.fullmatch(name)
        )
        places = [*filter(None, [named]), *_of_library_path(target, environment), *_usual(target), *around]
        return tuple(_by_release(place, target) for place in _different(places, target))
    if named is not None:
        return (named,)
    return _different(_of_library_path(target, environment), target) or _different(_usual(target), target)


def _by_release(place: Place, target: Target) -> Place:
    """The place by the directory that a link such as /opt/rocm leads to, which is called after its release."""
    return replace(place, path=find_link_target(place.path, target.sysroot) or place.path)


def find_places_beside(target: Target, environment: Mapping[str, str], prefix: str) -> tuple[Place, ...]:
    """Return the places without a runtime of their own that LD_LIBRARY_PATH names and that have libraries of ROCm.

    A module may have one part of ROCm alone (Spack, EasyBuild).

    :param prefix: the ROCm that was found; what lies in it is not beside it.
    """
    inside = os.path.realpath(resolve_inside(target.sysroot, prefix)) + "/"
    found: dict[str, Place] = {}
    for directory in _list_library_path(target, environment):
        real = os.path.realpath(directory) + "/"
        names = list_names_in(directory, target.sysroot)
        if (
            not real.startswith(inside)
            and any(map(is_own, names))
            and not any(map(_RUNTIME.fullmatch, names))
        ):
            found.setdefault(real, _named_place(_prefix_of(directory, target), _LIBRARY_PATH, environment))
    return tuple(found.values())


def find_named(environment: Mapping[str, str]) -> Place | None:
    """Return the ROCm that a variable of a user or of a loaded module names, if one does."""
    variable = next(filter(environment.get, _VARIABLES), None)
    return _named_place(environment[variable], variable, environment) if variable else None


def _named_place(path: str, variable: str, environment: Mapping[str, str]) -> Place:
    """A place with the variable that has it, and the loaded module whose version the path has, if there is one."""
    for module in environment.get("LOADEDMODULES", "").split(":"):
        if (match := _MODULE.fullmatch(module)) and match["version"] in path:
            return Place(path, f"{variable}, module {module}")
    return Place(path, variable)


def _list_library_path(target: Target, environment: Mapping[str, str]) -> list[str]:
    """The directories of LD_LIBRARY_PATH, which are those of this machine."""
    entries = re.split("[:;]", environment.get(_LIBRARY_PATH, "")) if target.sysroot == "/" else []
    return [posixpath.normpath(entry) for entry in entries if entry.startswith("/")]


def _of_library_path(target: Target, environment: Mapping[str, str]) -> Iterator[Place]:
    for directory in _list_library_path(target, environment):
        if any(_RUNTIME.fullmatch(name) for name in list_names_in(directory, target.sysroot)):
            yield _named_place(_prefix_of(directory, target), _LIBRARY_PATH, environment)


def _different(places: Iterable[Place], target: Target) -> tuple[Place, ...]:
    """The places that have a runtime, each of its directories of libraries once."""
    found: list[Place] = []
    seen: set[str] = set()
    for place in places:
        shown = _runtime_directories(place.path, target)
        directories = {os.path.realpath(resolve_inside(target.sysroot, directory)) for directory in shown}
        # /opt/rocm is mostly a link to one of its neighbours: the same directories count once.
        if directories and not directories & seen:
            found.append(place)
        seen |= directories
    return tuple(found)


def choose_place(
    target: Target, environment: Mapping[str, str], own: bool, sonames: Collection[str] = ()
) -> Place | None:
    """Return the ROCm that the target's Python has in site-packages, or else the one that there is, or None.

    :param own: the target is a Python of this machine with its own loader. For another loader or another root directory nothing
        is guessed: the error says what was seen.
    :param sonames: what is needed.
    :raises SeveralPlacesError: there are several, or nothing is to be guessed; lists those that were found, and has those that
        lack fewest of ROCm's libraries that are needed.
    """
    if (named := find_named(environment)) is not None:
        return named
    sites = target.python_facts.site_packages if target.python_facts is not None else ()
    # The first that has ROCm, as the Python's import finds it.
    if site := next(filter(None, (find_site(place, target) for place in sites)), None):
        return Place(site, SITE_PACKAGES)
    places = find_places(target, environment)
    if len(places) == 1 and own:
        return places[0]
    if not places:
        return None
    message = "several ROCms are here; choose one by --prefix, or set ROCM_PATH"
    if not own:
        message = "no ROCm is guessed with --interpreter or --sysroot; name one by --prefix. Found there:"
    needed = sorted(filter(is_own, sonames))
    listed: list[str] = []
    lacking: dict[str, tuple[bool, int]] = {}  # whether a place lacks a runtime, and how many libraries
    for place in (_by_release(place, target) for place in places):
        try:
            provider = open_place(place.path, target)
            release = release_of(provider, target.sysroot)
        except RelinkError as error:
            listed.append(f"--prefix {place.path}  cannot be used: {error.message}")
            continue
        lacked = [soname for soname in needed if not provider.find(soname)]
        told = f"; lacks {join_truncated(lacked)}" if lacked else "; has all that is needed" if needed else ""
        shown = f"ROCm {release.release}" if release else "ROCm of an unknown release"
        listed.append(f"--prefix {place.path}  {shown}, found in {place.found_by}{told}")
        lacking[place.path] = any(map(is_runtime, lacked)), len(lacked)
    fewest = min(lacking.values(), default=None)
    fitting = [path for path, lack in lacking.items() if needed and lack == fewest]
    raise SeveralPlacesError(message, listed, fitting)


def prefix_of_libraries(path: str, target: Target) -> str:
    """Return ``DIR`` for ``DIR/lib`` (lib64, ``lib/x86_64-linux-gnu``) where ROCm's runtime lies there; other paths as given.

    Beside the libraries lies what says which release they are.
    """
    absolute = posixpath.abspath(path)
    prefix = _prefix_of(absolute, target)
    if prefix == absolute:
        return path
    inside = any(
        (directory + "/").startswith(absolute + "/") for directory in _runtime_directories(prefix, target)
    )
    return prefix if inside else path


def _usual(target: Target) -> Iterator[Place]:
    names = sorted(name for name in list_names_in("/opt", target.sysroot) if name.startswith("rocm"))
    # A link comes in the place of the directory that it leads to, just before that one.
    names.sort(key=lambda name: find_link_target(f"/opt/{name}", target.sysroot) or f"/opt/{name}")
    yield from (Place(f"/opt/{name}", "/opt") for name in names)
    # AMD's packages since 7.14: each release in a directory of its own, and links to the one that update-alternatives chose.
    releases = sorted(filter(_CORE_NAME.fullmatch, list_names_in("/opt/rocm", target.sysroot)))
    yield from (Place(f"/opt/rocm/{name}", "/opt/rocm") for name in releases)
    if target.cache is not None:
        header = target.header
        for soname in sorted(filter(_RUNTIME.fullmatch, target.cache.entries)):
            path = lookup(
                target.cache,
                soname,
                machine=header.machine,
                elf_class=header.elf_class,
                hwcaps=target.hwcaps,
            )
            if path is not None:
                yield Place(_prefix_of(posixpath.dirname(path), target), "ld.so.cache")
    yield Place("/usr", "/usr")


def _prefix_of(directory: str, target: Target) -> str:
    """Take the ending of a library directory off; ``/lib`` of a merged system belongs to ``/usr``."""
    for main in sorted(list_main_directories(target.header.machine), key=len, reverse=True):
        if main and directory.endswith(f"/{main}"):
            return directory[: -len(main) - 1] or "/usr"
    return directory


def _runtime_directories(prefix: str, target: Target) -> list[str]:
    """The prefix's library directories in which a runtime lies."""
    directories = [
        posixpath.join(prefix, main).rstrip("/") for main in list_main_directories(target.header.machine)
    ]
    return [
        directory
        for directory in directories
        if any(_RUNTIME.fullmatch(name) for name in list_names_in(directory, target.sysroot))
    ]


_CORE, _LIBRARIES = "rocm-sdk-core", "rocm-sdk-libraries"
# Other distributions with libraries, and where these lie in the distribution's directory.
_MORE = {"rocm-profiler": "lib", "migraphx-libs": ""}
_INFO = re.compile(
    r"(rocm(?:[-_.](?:sdk[-_.][A-Za-z0-9_.]+|profiler))?|migraphx[-_.]libs)-([^-]+)\.dist-info", re.IGNORECASE
)
_DISTRIBUTION = re.compile(r"rocm(?:-sdk-.+|-profiler|-bootstrap)?|migraphx-libs")
_DEVICE = re.compile(r"\bdevice-(all|gfx[0-9a-fx]+(?:-\d)?)$")
# pytorch#191688 says so of the nightlies of 7.14; an index knows the sizes of its own.
_DEVICE_ALL = "by what is known of ROCm 7.14 about 10 GB to fetch and 19 GB on the disk"
_DIRECTORY = re.compile(r"_rocm_(?:sdk|profiler)\w*|migraphx_libs", re.ASCII)
_LABEL = re.compile(r"rocm(\d+(?:\.\d+)*)")
_PYTHON = re.compile(r"python3(?:\.\d+t?)?")
_CORE_DIRECTORIES = ("lib", "lib/host-math/lib", "lib/llvm/lib", "lib/rocm_sysdeps/lib")
# Stems for which TheRock has another short name.
_SHORT = {"MIOpen": "miopen"}


def is_package(name: str) -> bool:
    """Whether a directory in site-packages is called as those of ROCm's packages are."""
    return _DIRECTORY.fullmatch(name) is not None


def is_distribution(name: str) -> bool:
    """Whether a distribution is one of ROCm's, or ``rocm-bootstrap``, which chooses those with device code for a GPU."""
    return _DISTRIBUTION.fullmatch(canonicalize_name(name)) is not None


def bundles() -> dict[str, str]:
    """Return what brings the packages that most wheels need, as AMD's own wheels require it."""
    return dict.fromkeys((_CORE, _LIBRARIES), "rocm[libraries]")


def device_note(name: str, extras: Collection[str], gpus: Sequence[str]) -> tuple[str, str] | None:
    """Return what is to be said of a requirement that brings the code for GPUs, and what to do; None for any other.

    :param gpus: the processors of the GPUs that count.
    """
    brought = [*(extra.lower() for extra in extras), canonicalize_name(name)]
    named = {found[1] for one in brought if (found := _DEVICE.search(one))}
    if "all" in named:
        others = sorted(extra for extra in extras if not _DEVICE.search(extra))
        own = [f"device-{gpu}" for gpu in dict.fromkeys(gpus)] or ["device-gfxNNN"]
        message = f"brings the code for every GPU, {_DEVICE_ALL}; one GPU needs one of these packages"
        return message, f"Install rocm[{','.join([*own, *others])}] instead, then this wheel with --no-deps."
    if not named or not gpus or any({gpu, *table().families_of(gpu)} & named for gpu in gpus):
        return None
    message = f"brings the code for {join_with_and(sorted(named))} alone, none for {join_with_and([*gpus])}"
    return message, f"Install {join_with_and([f'rocm[device-{gpu}]' for gpu in gpus])} beside it."


def narrow(requirements: Sequence[Requirement], gpus: Sequence[str]) -> list[Requirement | None]:
    """Return requirements that bring the code for these GPUs alone, None for one that brings that for others alone.

    They are as they were where one of the GPUs would have no package then.
    """

    def devices(one: Requirement) -> set[str]:
        texts = () if "extra" in str(one.marker) else (*one.extras, one.name)
        return {found[1] for text in texts if (found := _DEVICE.search(canonicalize_name(text)))}

    named = {device for one in requirements for device in devices(one)}
    wanted = set()
    for gpu in gpus:
        own = (gpu, *table().families_of(gpu))
        if gpu not in table().processors or not ({"all", *own} & named):
            return [*requirements]
        wanted.add(next((name for name in own if name in named), gpu))
    kept: list[Requirement | None] = []
    for one in requirements:
        brought = devices(one)
        if not wanted or brought <= wanted:
            kept.append(one)
        elif one.extras:
            new = Requirement(str(one))
            new.extras = {extra for extra in one.extras if not _DEVICE.search(canonicalize_name(extra))}
            new.extras |= {f"device-{name}" for name in (wanted if "all" in brought else brought & wanted)}
            kept.append(new)
        else:
            kept.append(None)
    return kept


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
        for name in list_names_in(posixpath.join(absolute, lib), target.sysroot)
        if _PYTHON.fullmatch(name)
        for packages in ("site-packages", "dist-packages")
    ]
    facts = target.python_facts
    own = f"/python3.{facts.version[1]}/" if facts is not None else "/"
    # False comes first: the site-packages of the target's own Python, then the others in their order.
    places += sorted(inside, key=lambda place: own not in place)
    return next((place for place in places if packages_of(place, target, _CORE)), None)


def open_site(path: str, target: Target, gpus: Sequence[str] = ()) -> Provider:
    """Read what the ROCm of a site-packages provides to `target`.

    Of several packages of libraries the neutral one is taken, else that for one of `gpus`, else the first.

    :param path: as :func:`find_site` returns it.
    :param gpus: processors of the GPUs that the user asks for.
    :raises ProviderError: there is no library for the target in it.
    """
    packages, core, libraries = _sort_packages(path, target)
    # One package of libraries: the neutral one, or the best for the GPUs.
    chosen = [core, *sorted(libraries, key=lambda item: _rank(item, gpus))[:1]]
    more = [item for item in packages if item.canonical in _MORE and item.directory]
    directories = [
        *(f"{item.directory}/lib" for item in chosen if item.directory),
        *(f"{core.directory}/{place}" for place in _CORE_DIRECTORIES[1:] if core.directory),
        *(posixpath.normpath(f"{item.directory}/{_MORE[item.canonical]}") for item in more),
    ]
    provider = read_directories(SITE_PACKAGES, path, directories, target)
    if not provider.libraries:
        raise ProviderError(
            f"{path}: {_CORE} is installed there, and no library of it can be loaded by the target; install it again",
            [f"{found.path}: {found.reason}" for found in provider.skipped[:10]],
        )
    return replace(provider, packages=(*chosen, *more))


def packages_of(path: str, target: Target, only: str | None = None) -> tuple[InstalledPackage, ...]:
    """Return the distributions of ROCm in a site-packages, by name; `only` that of one name."""
    return tuple(read_distributions(path, target, only, _INFO, is_package))


def _sort_packages(
    path: str, target: Target
) -> tuple[tuple[InstalledPackage, ...], InstalledPackage, list[InstalledPackage]]:
    """Return the distributions of ROCm in a site-packages, of these ``rocm-sdk-core``, and those that have libraries to compute.

    Of the last there is a neutral one, or one for each family of GPUs.
    """
    packages = packages_of(path, target)
    core = next(item for item in packages if item.canonical == _CORE)
    return packages, core, [item for item in packages if item.canonical.startswith(_LIBRARIES)]


def site_findings(
    provider: Provider, sonames: Iterable[str], target: Target, gpus: Sequence[str]
) -> Iterator[Finding]:
    """Yield what is to be said about the packages of ROCm in a site-packages: versions, families and devices.

    :param sonames: the libraries that the members load.
    :param gpus: processors of those that the user asks for.
    """
    path = provider.path
    packages, core, libraries = _sort_packages(path, target)
    if strangers := [item for item in packages if not _belongs_to(item, core)]:
        versions = ", ".join(f"{item.name} {item.version}" for item in packages)
        text = f"these ROCm packages are of different releases: {versions}"
        # A package that is labelled with its ROCm (+rocm…) has a version of its own.
        same = [f"{item.name}=={core.version}" for item in strangers if "+rocm" not in item.version]
        yield finding("RLK531", path, text, step=f"pip install {' '.join(same)}" if same else None)
    taken = next((item for item in provider.packages if item in libraries), None)
    if taken is None:
        return
    if len(libraries) > 1:
        names = join_truncated([item.name for item in libraries])
        yield finding("RLK532", path, f"{names} are installed; {taken.name} is taken")
    found = (provider.find(soname) or "" for soname in sonames)
    uses = any(place.startswith(f"{path}/{taken.directory}/") for place in found)
    devices = any(item.canonical.startswith("rocm-sdk-device-") for item in packages)
    # With a GPU named, the coverage of its code says more exactly what is missing.
    if uses and not gpus and family_of(taken) is None and not devices:
        text = f"{taken.name} {taken.version} has no code for a GPU by itself, and no rocm-sdk-device-… is installed"
        remedy = f"Install the package for the GPU, such as rocm-sdk-device-gfx1100=={taken.version}."
        yield finding("RLK533", path, text, remedy)


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
    return package.canonical.removeprefix(_LIBRARIES).lstrip("-") or None


def _rank(package: InstalledPackage, gpus: Iterable[str]) -> tuple[bool, bool, str]:
    family = family_of(package)
    start = re.sub(r"x(?:-.*)?$", "", family or "")
    fits = any(gpu.startswith(start) for gpu in gpus)
    return family is not None, not fits, package.name


def _belongs_to(package: InstalledPackage, core: InstalledPackage) -> bool:
    label = _LABEL.match(package.version.partition("+")[2])
    return major_minor(label[1]) == major_minor(core.version) if label else package.version == core.version


def release_of(provider: Provider, sysroot: str = "/") -> Release | None:
    """Return the release of ROCm that a provider holds, or None where nothing says it.

    :param sysroot: the target's; the paths of `provider` are as seen from inside of it.
    """
    if provider.packages:
        package = provider.packages[0]
        # What a builder put behind the release, as a local label, is left out.
        return _release(package.version.partition("+")[0], f"{package.name} {package.version}")
    return next(_find_releases(provider, sysroot), None)


def _find_releases(provider: Provider, sysroot: str) -> Iterator[Release]:
    """Yield what a prefix says of its release, the most exact first."""
    root, real = _Root(provider.path, sysroot), None
    runtimes = [paths[0] for name, paths in provider.libraries.items() if name.startswith(_HIP)]
    if runtimes:
        # The runtime may lie in another prefix, where links lead to one: /opt/rocm/lib is core-10.1/lib.
        place = posixpath.dirname(os.path.realpath(resolve_inside(sysroot, posixpath.dirname(runtimes[0]))))
        outside = sysroot.rstrip("/")
        seen = place.removeprefix(outside) if place.startswith(f"{outside}/") else place
        real = _Root(seen, sysroot) if seen != posixpath.normpath(provider.path) else None
    yield from _in_text(root, _INFO_VERSION, r"\A\s*")
    if real:
        yield from _in_text(real, _INFO_VERSION, r"\A\s*", f"{real.path}/")
    for name in ("include/rocm-core/rocm_version.h", "include/rocm_version.h"):
        if numbers := _defined(root.head(name), "ROCM_VERSION", ("MAJOR", "MINOR", "PATCH")):
            yield _release(numbers, name)
    yield from _in_text(root, _MANIFEST, r'"rocm_(?:package_)?version"\s*:\s*"')
    # Debian's packages say the upstream release in the first line of their changelog; the newest HIP speaks for the prefix.
    packages = filter(
        None, (re.fullmatch(r"libamdhip64-(\d{1,9})", name) for name in root.names("share/doc"))
    )
    for package in sorted(packages, key=lambda match: (int(match[1]), match[0]), reverse=True):
        changelog = f"share/doc/{package[0]}/changelog.Debian.gz"
        yield from _in_text(root, changelog, r"\A\S+ \((?:\d+:)?")
    for start, pattern in (("librocm-core.so.", _CORE_LIBRARY), (_HIP, _OLD_HIP_NAME)):
        yield from _in_names(_real_names(provider, sysroot, start), pattern)
    # AMD's packages lie side by side since 7.14: /opt/rocm/core-10.1.
    roots = [root, real] if real else [root]
    names = (posixpath.basename(one.path.rstrip("/")) for one in roots)
    yield from (_release(match[1], match[0]) for match in map(_CORE_DIRECTORY.fullmatch, names) if match)
    if any(one.path.startswith("/opt/rocm") for one in roots):
        # amdrocm-runtime10.1 of dpkg, where the packages of one release alone are installed.
        listed = _Root("/var/lib/dpkg", sysroot).names("info")
        found = [match for name in listed if (match := _PACKAGE.fullmatch(name))]
        if len({match[2] for match in found}) == 1:
            yield _release(found[0][2], f"package {min(match[1] for match in found)}")
    # libamdhip64.so.7.2.53211 only tells HIP 7.2 and the number of a build.
    hips = [
        ((int(match[1]), int(match[2])), match[0])
        for match in map(_HIP_NAME.fullmatch, _real_names(provider, sysroot, _HIP))
        if match
    ]
    hips = [max(hips)] if hips else []
    # The third number of HIP is that of a build and not of ROCm, so only two are read.
    name = "include/hip/hip_version.h"
    if numbers := _defined(root.head(name), "HIP_VERSION", ("MAJOR", "MINOR")):
        major, _, minor = numbers.partition(".")
        hips.append(((int(major), int(minor)), name))
    for hip, evidence in hips:
        if release := release_of_hip(hip):
            yield _release(release, f"{evidence}, inferred from HIP {hip[0]}.{hip[1]}")
    if provider.kind == NIX_STORE:
        # nixpkgs gives all of ROCm one version.
        yield from (_release(*version) for version in map(version_in_store_path, runtimes) if version)


def _release(release: str, evidence: str) -> Release:
    return Release(release, evidence, f"{ROCM}{release}")


_INFO_VERSION = ".info/version"
# TheRock writes it since 7.13 (build_tools/generate_therock_manifest.py).
_MANIFEST = "share/therock/therock_manifest.json"
_CORE_LIBRARY = re.compile(r"librocm-core\.so\.\d{1,9}\.\d{1,9}\.(?P<packed>\d{5,6})(?:-\S+)?")
_OLD_HIP_NAME = re.compile(
    r"libamdhip64\.so\.(?P<series>\d{1,9}\.\d{1,9})\.(?P<packed>\d{5,6})(?:-\S+)?"
)  # AMD's, up to 6.x
_HIP = "libamdhip64.so."
_HIP_NAME = re.compile(r"libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.\d{1,9}(?:-\S+)?")
_CORE_DIRECTORY = re.compile(r"core-(?:asan-)?(\d{1,9}\.\d{1,9})")
_PACKAGE = re.compile(r"(amdrocm-[a-z-]+?(\d{1,9}\.\d{1,9}))(?:-gfx[a-z0-9-]+)?\.list")


class _Root(msgspec.Struct, frozen=True):
    """A prefix, as a place to look for what says which release it is."""

    path: str
    sysroot: str

    def head(self, name: str) -> str:
        """The first 16 KiB of a text file in it; empty where there is none."""
        try:
            raw = read_start(resolve_inside(self.sysroot, posixpath.join(self.path, name)), 65536)
            if name.endswith(".gz"):
                # A gzip file (31) may expand to any size, so decompression stops after 16 KiB.
                raw = zlib.decompressobj(wbits=31).decompress(raw, 16384)
        except (OSError, zlib.error):
            return ""
        return raw[:16384].decode("utf-8", "replace")

    def names(self, directory: str) -> list[str]:
        """Return what a directory in it holds; nothing where there is none."""
        return list_names_in(posixpath.join(self.path, directory), self.sysroot)


def _in_text(root: _Root, name: str, pattern: str, shown: str = "") -> Iterator[Release]:
    """Yield the release that a file says, by the pattern of what stands before the number."""
    if match := re.search(rf"{pattern}(\d{{1,9}}\.\d{{1,9}}(?:\.\d{{1,9}})?)", root.head(name)):
        yield _release(match[1], f"{shown}{name}")


def _real_names(provider: Provider, sysroot: str, start: str) -> Iterator[str]:
    for soname, paths in provider.libraries.items():
        if soname.startswith(start):
            yield posixpath.basename(os.path.realpath(resolve_inside(sysroot, paths[0])))


def _in_names(names: Iterable[str], pattern: re.Pattern[str]) -> Iterator[Release]:
    """Yield the newest: ``librocm-core.so.1.0.71300`` is ROCm 7.13.0, ``libamdhip64.so.6.2.60204`` is 6.2.4."""
    found: list[tuple[tuple[int, int, int], str]] = []
    for match in filter(None, map(pattern.fullmatch, names)):
        packed = int(match["packed"])
        numbers = packed // 10000, packed // 100 % 100, packed % 100
        # libamdhip64.so.7.2.53211 has the number of a build at its end, which does not say 7.2 once more.
        if match.groupdict().get("series", f"{numbers[0]}.{numbers[1]}") == f"{numbers[0]}.{numbers[1]}":
            found.append((numbers, match[0]))
    if found:
        yield _release(".".join(map(str, max(found)[0])), max(found)[1])


def _defined(text: str, prefix: str, parts: Sequence[str]) -> str:
    """The numbers that a header defines, joined by dots; empty where one is missing."""
    found = [
        re.search(rf"^\s*#\s*define\s+{prefix}_{part}\s+(\d{{1,9}})\b", text, re.MULTILINE) for part in parts
    ]
    return ".".join(match[1] for match in found if match) if all(found) else ""
