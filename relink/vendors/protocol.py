"""What the packages that name no vendor ask of one, by question: its libraries, its places, its packages, its GPUs.

A vendor is a package beside this module whose ``vendor.py`` makes a :class:`Vendor`; :mod:`relink.vendors.registry` lists it.
Each part is plain data and functions with defaults: those of a vendor of which nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from packaging.requirements import Requirement

from relink.elf.source import ByteSource
from relink.gpu.coverage import FileCode, GpuPlan, RequestedGpu, Survey, TargetId
from relink.gpu.removal import CodeRemoval
from relink.loader.target import Target
from relink.providers.distribution import Distribution
from relink.providers.prefix import InstalledPackage, Provider
from relink.system.errors import ProviderError
from relink.system.findings.model import Finding

Relation: TypeAlias = Literal["own", "shared", "foreign", "unknown"]
"""Whether a library is where a symbol comes from: ``own``, it is; ``shared``, it may be, and so may others; ``foreign``, it is
not; ``unknown``, no table says."""

TextKind: TypeAlias = Literal["returned", "stored"]
"""How a function gives a text: it returns it, or it returns a status and stores the text where its second argument points."""

TextRow: TypeAlias = tuple[str, str]
"""A line for people, and its style: a colour, ``bold``, or nothing."""


class Release(msgspec.Struct, frozen=True):
    """A release of the vendor's libraries and the evidence for it.

    :ivar release: as exact as the evidence: ``7.2.4``, or only ``7.2``.
    :ivar evidence: the file of the prefix that says so, relative to it; or the name of a library or of a store path.
    :ivar label: the release in a local version label: the vendor's name and the number.
    """

    release: str
    evidence: str
    label: str


class Place(msgspec.Struct, frozen=True):
    """A prefix that holds a runtime of the vendor's.

    :ivar path: as the target sees it, links as they were found.
    :ivar found_by: a variable, and the loaded module that set it; ``site-packages``, ``/opt``, ``ld.so.cache`` or ``/usr``.
    """

    path: str
    found_by: str


class Component(msgspec.Struct, frozen=True):
    """A part of what the vendor gives, or a library that it needs, and who has it.

    :ivar name: what it calls itself.
    :ivar attribute: its path in nixpkgs, such as ``pkgs.numactl``; None where nixpkgs has none.
    :ivar sonames: major of the runtime's soname → sonames; the key ``any`` holds for every major.
    :ivar debian: soname → package; Debian names the package of a library by its soname.
    :ivar packages: family of distributions → package, where one name serves for every release.
    :ivar newest: the newest major of the runtime's soname: later releases have it still.
    """

    name: str
    attribute: str | None
    sonames: Mapping[str, tuple[str, ...]]
    debian: Mapping[str, str] = msgspec.field(default_factory=dict)
    packages: Mapping[str, str] = msgspec.field(default_factory=dict)
    newest: int | None = None

    def of(self, major: int | None) -> tuple[str, ...]:
        """Return its sonames in releases of that major; those of every major where none is given."""
        if major is None:
            return tuple(soname for items in self.sonames.values() for soname in items)
        key = major if self.newest is None else min(major, self.newest)
        return (*self.sonames.get("any", ()), *self.sonames.get(str(key), ()))

    def package(self, soname: str, family: str | None) -> str | None:
        """Return the package of a family of distributions that has a soname, or None where none is known."""
        return self.debian.get(soname) if family == "debian" else self.packages.get(family or "")


class OptionalLibrary(msgspec.Struct, frozen=True):
    """A library that a stub may stand in for.

    :ivar names: a regular expression that the library's own names begin with.
    :ivar status: what its functions say for "not supported", and `answer` the number.
    :ivar why: why it is optional; empty where only a package's profile says so (`Profile.optional_libraries`).
    :ivar functions: those that return a status, or nothing.
    """

    names: str
    status: str
    answer: int
    why: str
    functions: frozenset[str]


class GpuQuestion(msgspec.Struct, frozen=True):
    """What is known of one planned wheel when a vendor is asked which GPUs it runs on.

    :ivar codes: the vendor's device code in the members that are served, and in files of kernels, by member.
    :ivar on_disk: member → (soname, path) of members that lie on the disk already.
    :ivar libraries: (soname, path) of the providers' libraries that the members reach, each path once, in load order.
    :ivar sonames: what the members need themselves, then what they reach.
    :ivar providers: in order of preference; their paths are as seen below `sysroot`.
    :ivar gpus: those that are asked for or were seen, of this vendor.
    :ivar releases: (name and version, processors) of other releases of the wheel.
    :ivar allow_gap: missing code is a warning, not an error.
    """

    codes: Mapping[str, FileCode]
    on_disk: Mapping[str, tuple[str, str]]
    libraries: Sequence[tuple[str, str]]
    sonames: Sequence[str]
    providers: Sequence[Provider]
    sysroot: str
    gpus: Sequence[RequestedGpu]
    releases: Sequence[tuple[str, tuple[str, ...]]]
    allow_gap: bool


class Diagnosis(msgspec.Struct, frozen=True):
    """What a vendor says of this machine and of its prefixes on it.

    :ivar facts: of the machine, as JSON data; `prefixes` one object a prefix.
    :ivar rows: the facts for people; `prefix_rows` of each prefix: its path, what it is, then rows.
    """

    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    prefixes: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[TextRow, ...] = ()
    prefix_rows: tuple[tuple[str, str, tuple[TextRow, ...]], ...] = ()
    findings: tuple[Finding, ...] = ()


def _open_no_site(path: str, *_: object) -> Provider:
    raise ProviderError(f"{path}: the vendor's libraries are in no package")


class Libraries(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about a vendor's libraries. A soname stands for the library of any version, unless it says otherwise.

    :ivar runtime: the library that each of its GPU programs needs, without a version; a process must have one of it.
    :ivar runtime_libraries: that library, and those that decide with it what can be loaded: results depend on them.
    :ivar runtime_name: what messages call that library.
    :ivar is_own: soname → whether it is one of the vendor's: a process must not have two of it.
    :ivar has: soname → whether the vendor's product comes with it: only then a message advises the product.
    :ivar is_runtime: soname → whether all of the vendor's libraries share it and it goes with a driver: the first prefix alone
        serves it.
    :ivar is_driver: soname → whether it comes with the driver of the machine, and with nothing that is installed into Python.
    :ivar driver_file: a file that is there where that driver is loaded.
    :ivar of_host: soname → why it belongs to the machine's driver or network rather than to a release, or None where it does not.
    :ivar needs_host: root directory → whether its driver is one that the libraries of this kind in a wheel do not know.
    :ivar same_abi: two sonames → why they are one ABI, or None where nothing says so.
    :ivar copy_of: soname → the sonames of the system's libraries that it is a copy of, of which the first that there is counts,
        and why that is known; or None.
    :ivar optional: soname → what a stub of it needs to know, or None where nothing is known of one.
    :ivar text_of: name of a function that does nothing but describe an error → how it gives its text; None for any other.
    :ivar whose: soname, name of a symbol → whether the library is where the symbol comes from.
    :ivar dlopens_of: soname, the names of the libraries that there are → what it dlopens: soname → why.
    :ivar components: the parts of the vendor's product.
    :ivar package_set: the set of nixpkgs that most of them are attributes of.
    :ivar package_support: the setting of nixpkgs by which other packages are built for them.
    :ivar where_to_get: soname, the target's distribution, providers → a sentence that says which package has it, or None.
    :ivar install: the same → the command that installs exactly that library, or None.
    :ivar torch_variable: the variable of torch/version.py that has the release which a torch is built for.
    :ivar words: how files for its GPUs are named, in lower case: of several variants for several vendors.
    :ivar release_of: provider, sysroot → the release of the vendor's libraries in it, or None where nothing says it.
    """

    runtime: str = ""
    runtime_libraries: tuple[str, ...] = ()
    runtime_name: str = "GPU runtime"
    is_own: Callable[[str], bool] = lambda *_: False
    has: Callable[[str], bool] = lambda *_: False
    is_runtime: Callable[[str], bool] = lambda *_: False
    is_driver: Callable[[str], bool] = lambda *_: False
    driver_file: str = ""
    of_host: Callable[[str], str | None] = lambda *_: None
    needs_host: Callable[[str], bool] = lambda *_: False
    same_abi: Callable[[str, str], str | None] = lambda *_: None
    copy_of: Callable[[str], tuple[Sequence[str], str] | None] = lambda *_: None
    optional: Callable[[str], OptionalLibrary | None] = lambda *_: None
    text_of: Callable[[str], TextKind | None] = lambda *_: None
    whose: Callable[[str, str], Relation] = lambda *_: "unknown"
    dlopens_of: Callable[[str, Collection[str]], Mapping[str, str]] = lambda *_: {}
    components: Callable[[], Sequence[Component]] = lambda *_: ()
    package_set: str = ""
    package_support: str = ""
    torch_variable: str = ""
    words: tuple[str, ...] = ()
    where_to_get: Callable[[str, Distribution | None, Iterable[Provider]], str | None] = lambda *_: None
    install: Callable[[str, Distribution | None, Iterable[Provider]], str | None] = lambda *_: None
    release_of: Callable[[Provider, str], Release | None] = lambda *_: None


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about the prefixes of a target that have a vendor's libraries.

    :ivar variable: the environment variable that names the prefix of the libraries; messages advise it.
    :ivar named: environment → the prefix that a variable of it names, or None; it is not looked at.
    :ivar find: target, environment, directory → every prefix of the target that has the libraries. Where the directory is not
        None: also those that a variable hides, and those in it or beside it; all of them by their real directories.
    :ivar choose: target, environment, whether the target is a Python of this machine with its own loader, the sonames that are
        needed → the prefix to use where the user names none, or None where there is none. Raises SeveralPlacesError: there are
        several, or nothing is to be guessed.
    :ivar find_beside: target, environment, that prefix → what the environment names beside it that has parts of the libraries.
    :ivar prefix_of_libraries: path, target → ``DIR`` for ``DIR/lib`` where a runtime lies there; other paths as given.
    """

    variable: str = "LD_LIBRARY_PATH"
    named: Callable[[Mapping[str, str]], Place | None] = lambda *_: None
    find: Callable[[Target, Mapping[str, str], str | None], Sequence[Place]] = lambda *_: ()
    choose: Callable[[Target, Mapping[str, str], bool, Collection[str]], Place | None] = lambda *_: None
    find_beside: Callable[[Target, Mapping[str, str], str], Sequence[Place]] = lambda *_: ()
    prefix_of_libraries: Callable[[str, Target], str] = lambda path, _: path


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about the packages by which pip installs a vendor's libraries.

    :ivar version_label: the part of a local version label that names a release; an output's label takes its place.
    :ivar is_package: name of a directory in site-packages → whether the vendor's libraries lie in one that is called so.
    :ivar is_distribution: name → whether a distribution brings the vendor's libraries, or is there for those that do.
    :ivar bundles: the vendor's distributions that others bring: name → requirement without a version, extras included.
    :ivar device_note: name and extras of a requirement, processors → what is to be said of the GPUs that it brings code for, and
        what to do; None where it brings no code of its own, or what is right for these.
    :ivar narrow: requirements, processors → the requirements that bring the code for these alone, None for one for others alone.
    :ivar find_site: path, target → the site-packages with the vendor's packages that a user may mean by it, or None.
    :ivar open_site: path as `find_site` returns it, target, processors of the GPUs that the user asks for, where packages are
        for some alone → what the packages there provide. Raises ProviderError: no library in it is for the target.
    :ivar packages_of: path, target → the vendor's packages in a site-packages.
    :ivar site_findings: provider, the sonames that the members load, target, processors as for `open_site` → what is to be
        said about the vendor's packages in a site-packages.
    :ivar preload_lines: sonames → statements of Python that map them before others ask for them by their sonames.
    """

    # (?!) matches nothing.
    version_label: re.Pattern[str] = re.compile(r"(?!)")
    is_package: Callable[[str], bool] = lambda *_: False
    is_distribution: Callable[[str], bool] = lambda *_: False
    bundles: Callable[[], Mapping[str, str]] = lambda *_: {}
    device_note: Callable[[str, Collection[str], Sequence[str]], tuple[str, str] | None] = lambda *_: None
    narrow: Callable[[Sequence[Requirement], Sequence[str]], Sequence[Requirement | None]] = (
        lambda all_of, _: all_of
    )
    find_site: Callable[[str, Target], str | None] = lambda *_: None
    open_site: Callable[[str, Target, Sequence[str]], Provider] = _open_no_site
    packages_of: Callable[[str, Target], Sequence[InstalledPackage]] = lambda *_: ()
    site_findings: Callable[[Provider, Iterable[str], Target, Sequence[str]], Iterable[Finding]] = lambda *_: ()
    preload_lines: Callable[[Iterable[str]], str] = lambda sonames: "; ".join(
        ["import ctypes", *(f'ctypes.CDLL("{soname}")' for soname in sonames)]
    )


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about GPUs and the code for them.

    :ivar examples: a target id and a product, as messages about ``--gpu`` show them; empty where it can name no GPU.
    :ivar read_code: content of a file, its path → its device code, or None where the vendor has none in it and nothing to say.
    :ivar kernel_suffixes: how the names of files end that hold device code and nothing else.
    :ivar signatures: the first four bytes of what `read_code` looks for at the beginning of pages.
    :ivar remove_code: content of a file, its code as the vendor has read it, GPUs, whether code that is compiled on first use
        goes as well → what takes the code for other GPUs out of the file; nothing where it cannot be seen to be harmless.
    :ivar find_changed_entries: content of a file, its code, offset → SHA-256 of what `remove_code` left there → what is other
        code now, a sentence each.
    :ivar list_other_files: names of files, the code of those that hold nothing else, GPUs → the files for other GPUs alone, and
        for which each is.
    :ivar compare_code: the code before and after an edit → what the edit changed.
    :ivar add_archives: codes by member, the wheel, where a member is installed, pairs of a directory in which members are
        installed and one on disk, other wheels, members that are left out → the codes with what lies in archives beside them.
    :ivar parse: a text of ``--gpu``, environment → the GPU, or None where it names none of the vendor's.
    :ivar find_local: root directory, environment → the GPUs of this machine as nobody asked for them, and why there are none.
    :ivar products: processor → the products that have it.
    :ivar check: what is known of a planned wheel → which GPUs it runs on.
    :ivar survey: path, globs of a wheel's members of which one is loaded, how many bytes of other data to search → what
        ``relink isa`` finds there.
    :ivar diagnose: prefixes of the vendor's, root directory, environment → what ``relink doctor`` says.
    :ivar kernel_directories: where kernel files of a library may lie, relative to its directory.
    :ivar variables: globs of the environment variables by which a user steers the vendor's programs.
    :ivar runtime_words: key of the report's ``isa.runtime`` → what people call it, in the order in which it is shown.
    """

    examples: tuple[str, ...] = ()
    read_code: Callable[[ByteSource, str], FileCode | None] = lambda *_: None
    kernel_suffixes: tuple[str, ...] = ()
    signatures: tuple[bytes, ...] = ()
    compare_code: Callable[[Any, Any], Sequence[str]] = lambda *_: ()
    remove_code: Callable[[ByteSource, Any, Collection[TargetId], bool], CodeRemoval] = lambda _, code, *__: (
        CodeRemoval((), code)
    )
    find_changed_entries: Callable[[ByteSource, Any, Mapping[int, str]], Sequence[str]] = lambda *_: ()
    list_other_files: Callable[[Iterable[str], Any, Collection[TargetId]], Mapping[str, str]] = lambda *_: {}
    add_archives: Callable[..., Mapping[str, FileCode]] = lambda codes, *_: codes
    parse: Callable[[str, Mapping[str, str]], RequestedGpu | None] = lambda *_: None
    find_local: Callable[[str, Mapping[str, str]], tuple[Sequence[RequestedGpu], Sequence[str]]] = lambda *_: (
        (),
        (),
    )
    products: Callable[[], Mapping[str, Sequence[str]]] = lambda *_: {}
    check: Callable[[GpuQuestion], GpuPlan] = lambda _: GpuPlan({})
    survey: Callable[[Path, Sequence[str], int], Survey | None] = lambda *_: None
    diagnose: Callable[[Sequence[Provider], str, Mapping[str, str]], Diagnosis] = lambda *_: Diagnosis()
    kernel_directories: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    runtime_words: Mapping[str, str] = msgspec.field(default_factory=dict)


class Vendor(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A vendor of GPU libraries.

    :ivar name: what findings and evidence call the source of a fact.
    :ivar product: what messages call the vendor's libraries as a whole.
    """

    name: str = "vendor"
    product: str = "release"
    libraries: Libraries = Libraries()
    places: Places = Places()
    packages: Packages = Packages()
    gpus: Gpus = Gpus()


NO_VENDOR = Vendor()
"""A vendor of which nothing is known."""
