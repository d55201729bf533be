"""A stand-in for a ROCm prefix: libraries with the sonames, symbols and versions that a wheel imports, and nothing inside.

It shows linking and no more: every function returns 0 and every object is zeros. What a wheel imports is known exactly from its
symbol tables, so the real loader binds a relinked wheel to a stand-in just as it would to the real libraries.
"""

from __future__ import annotations

import functools
import importlib.util
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.elf.image import Image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Import, SymbolTable
from relink.loader.loading import load
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import Target
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.system.errors import RelinkError
from relink.system.safe_open import map_file

__all__ = [
    "NOTICE",
    "StandinLibrary",
    "build_standin",
    "compiler",
    "foreign_sonames",
    "process_exports",
    "standin_libraries",
]

NOTICE = "STAND-IN.txt"  # the file in a stand-in that says what it is
_OBJECT_SIZE = 256  # bytes; an undefined symbol does not say how large the real object is


@dataclass(frozen=True, slots=True)
class _Behind:
    """A library that the real `stem` needs in turn, and where ROCm keeps it.

    :ivar runpath: the RUNPATH of the library that needs it, ``{rocm}`` for the release: a build directory, as vendors write.
    """

    stem: str
    soname: str
    directory: str
    runpath: str | None


# Of the real libraries' many dependencies, one a kind that makes relinking hard: a directory of its own that only an absolute
# RUNPATH names, and a library that the wheel calls without naming it (onnxruntime-rocm imports rocblas_* and needs libhipblas).
_BEHIND = (
    _Behind(
        "libmigraphx_c.so", "libmigraphx.so.2014000", "lib/migraphx/lib", "/opt/rocm-{rocm}/lib/migraphx/lib"
    ),
    _Behind("libhipblas.so", "librocblas.so.5", "lib", None),
)


@dataclass(frozen=True, slots=True)
class StandinLibrary:
    """One library of a stand-in.

    :ivar directory: below the prefix.
    :ivar symbols: (name, version or None, type), each once, in order.
    :ivar versions: the version nodes it defines; some may have no symbol.
    :ivar needed: sonames of other stand-in libraries.
    :ivar runpath: its DT_RUNPATH, ``{rocm}`` for the release.
    """

    soname: str
    directory: str
    symbols: tuple[tuple[str, str | None, str], ...]
    versions: tuple[str, ...]
    needed: tuple[str, ...] = ()
    runpath: str | None = None


def foreign_sonames(images: Mapping[str, Image]) -> tuple[str, ...]:
    """Return what the images of a wheel need that is neither in the wheel nor part of the platform, in order.

    :param images: the wheel's ELF members by name.
    """
    own = {name for member, image in images.items() for name in (image.soname, posixpath.basename(member))}
    found: dict[str, None] = {}
    for image in images.values():
        for soname in image.needed:
            if soname not in own and not is_platform_library(soname, image.header.machine):
                found[soname] = None
    return tuple(found)


def process_exports(paths: Iterable[Path], target: Target) -> frozenset[str]:
    """Return the names that the target's own process exports: its Python's, and those of the system libraries.

    :param paths: the wheel's libraries on disk; what they need and the target finds is read.
    """
    names: set[str] = set()
    read: set[str] = set()
    own = [str(path) for path in paths]
    for path in own:
        closure = load(Environment(target, Files(target.sysroot)), [path], target.python)
        for item in closure.objects:
            if item.path not in own and item.path not in read:
                read.add(item.path)
                with map_file(item.path) as buffer:
                    names.update(read_symbols(buffer).exports)
    return frozenset(names)


def standin_libraries(
    images: Mapping[str, Image], tables: Mapping[str, SymbolTable], elsewhere: Collection[str] = ()
) -> tuple[StandinLibrary, ...]:
    """Work out the libraries of a stand-in for a wheel.

    A version record says which library an import is from. An import without a version is given to the library that its name
    resembles most, of those that the image needs: to ld.so, which looks in all, it makes no difference.

    :param images: the wheel's ELF members by name; `tables`: their symbols.
    :param elsewhere: names that the target's process exports anyway (:func:`process_exports`).
    """
    foreign = foreign_sonames(images)
    provided = {*elsewhere, *(name for table in tables.values() for name in table.exports)}
    behind = {soname: _behind(soname, foreign) for soname in foreign}
    symbols: dict[str, dict[tuple[str, str | None], str]] = {}
    versions: dict[str, dict[str, None]] = {}
    for soname in foreign:
        symbols[soname] = {}
        if (one := behind[soname]) is not None:
            symbols.setdefault(one.soname, {})
    for member, table in tables.items():
        needed = [soname for soname in images[member].needed if soname in symbols]
        reachable = [*needed, *(one.soname for soname in needed if (one := behind.get(soname)) is not None)]
        for record in table.verneeds:
            if record.file in symbols:
                versions.setdefault(record.file, {}).update(dict.fromkeys(v.name for v in record.versions))
        for wanted in table.imports:
            supplier = _supplier(wanted, reachable, provided)
            if supplier in symbols:
                symbols[supplier].setdefault((wanted.name, wanted.version), wanted.type)
    return tuple(
        _library(soname, symbols[soname], tuple(versions.get(soname, ())), behind) for soname in symbols
    )


def _behind(soname: str, foreign: Collection[str]) -> _Behind | None:
    """Return what stands behind `soname`, unless the wheel needs that (in whatever version) itself."""
    stems = {soname_stem(name) for name in foreign}
    for one in _BEHIND:
        if one.stem == soname_stem(soname) and soname_stem(one.soname) not in stems:
            return one
    return None


def _supplier(wanted: Import, reachable: Sequence[str], provided: Collection[str]) -> str | None:
    """Return the soname of the library that an import is from, or None where the stand-in owes nothing.

    :param reachable: sonames, those that the image itself needs first.
    """
    if wanted.version is not None:
        return wanted.file
    if wanted.binding == "weak" or not wanted.relocated or wanted.name in provided:
        return None
    return max(reachable, key=lambda soname: _likeness(wanted.name, soname), default=None)


def _likeness(symbol: str, soname: str) -> int:
    """How many characters the beginnings of a symbol's and of a library's name have in common."""
    name = (
        re.sub(r"^_ZN?K?\d+", "", symbol).lower().replace("_", "")
    )  # C++: past the mangling, to the namespace
    stem = soname_stem(soname).removesuffix(".so").lower().removeprefix("lib").removeprefix("amd")
    return len(posixpath.commonprefix([name, stem.replace("_", "")]))


def _library(
    soname: str,
    symbols: Mapping[tuple[str, str | None], str],
    versions: tuple[str, ...],
    behind: Mapping[str, _Behind | None],
) -> StandinLibrary:
    listed = [(name, version, kind) for (name, version), kind in symbols.items()]
    directory = "lib"
    placed = next((one for one in behind.values() if one is not None and one.soname == soname), None)
    if placed is not None:
        directory = placed.directory
        listed.append((_marker(soname), None, "func"))
    beyond = behind.get(soname)
    return StandinLibrary(
        soname,
        directory,
        tuple(sorted(listed, key=lambda item: (item[0], item[1] or ""))),
        tuple(sorted({*versions, *(version for _, version, _ in listed if version)}, key=_version_key)),
        () if beyond is None else (beyond.soname,),
        None if beyond is None else beyond.runpath,
    )


def _marker(soname: str) -> str:
    """The symbol by which one stand-in library calls another."""
    return "relink_standin_" + re.sub(r"\W", "_", soname_stem(soname).removesuffix(".so"))


def _version_key(version: str) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", version)], version


def build_standin(
    images: Mapping[str, Image],
    tables: Mapping[str, SymbolTable],
    directory: Path,
    rocm_version: str,
    *,
    elsewhere: Collection[str] = (),
) -> Path:
    """Compile a stand-in prefix for a wheel into `directory` (made if need be) and return it.

    :param images: the wheel's ELF members by name; `tables`: their symbols.
    :param rocm_version: what ``.info/version`` is to say: ``7.2.4``.
    :param elsewhere: names that the target's process exports anyway (:func:`process_exports`).
    :raises RelinkError: there is no C compiler, it fails, or the wheel needs nothing from a ROCm.
    """
    libraries = {library.soname: library for library in standin_libraries(images, tables, elsewhere)}
    if not libraries:
        raise RelinkError(
            "the wheel needs no library but the platform's own: there is nothing to stand in for"
        )
    places = {soname: directory / library.directory / soname for soname, library in libraries.items()}
    for library in sorted(libraries.values(), key=lambda item: len(item.needed)):  # those needed first
        _compile(library, places, rocm_version)
    (directory / ".info").mkdir(exist_ok=True)
    (directory / ".info/version").write_text(f"{rocm_version}-standin\n")
    (directory / NOTICE).write_text(
        "This is not a ROCm. Its libraries have the names, symbols and versions that one wheel imports, and nothing inside.\n"
    )
    return directory


def _compile(library: StandinLibrary, places: Mapping[str, Path], rocm_version: str) -> None:
    output = places[library.soname]
    output.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-shared", "-fPIC", "-nostdlib", "-O1", "-w", "-fno-builtin", f"-Wl,-soname,{library.soname}"]
    flags += ["-Wl,--no-as-needed"]
    if library.runpath is not None:
        flags += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{library.runpath.format(rocm=rocm_version)}"]
    script = output.with_name(output.name + ".map")
    if library.versions:
        script.write_text("\n".join(_version_script(library)))
        flags += [f"-Wl,--version-script={script}"]
    needed = [str(places[soname]) for soname in library.needed]
    command = [*compiler(), *flags, "-x", "c", "-", "-x", "none", *needed, "-o", str(output)]
    run = subprocess.run(
        command, input="\n".join(_source(library)), text=True, capture_output=True, check=False
    )
    script.unlink(missing_ok=True)
    if run.returncode != 0:
        raise RelinkError(
            f"{library.soname}: the C compiler ended with {run.returncode}", run.stderr.splitlines()[:20]
        )


def _several_versions(library: StandinLibrary) -> dict[str, list[str]]:
    """The names that the library exports in more than one version, oldest version first."""
    found: dict[str, list[str]] = {}
    for name, version, _ in library.symbols:
        if version is not None:
            found.setdefault(name, []).append(version)
    return {name: sorted(versions, key=_version_key) for name, versions in found.items() if len(versions) > 1}


def _source(library: StandinLibrary) -> Iterator[str]:
    """The C source. Names are given to the assembler, since not all are identifiers of C."""
    several = _several_versions(library)
    for number, (name, version, kind) in enumerate(library.symbols):
        label = name
        if version is None and name in several:
            continue  # a reference without a version takes one of those
        if version is not None and name in several:
            label = f"relink_standin_{number}"
            mark = "@@" if version == several[name][-1] else "@"
            yield f'__asm__(".symver {label},{name}{mark}{version}");'
        if kind in ("object", "common", "tls"):
            thread = "__thread " if kind == "tls" else ""
            yield f'extern {thread}char s{number}[{_OBJECT_SIZE}] __asm__("{label}");'
            yield f"{thread}char s{number}[{_OBJECT_SIZE}] = {{0}};"
        else:
            yield f'long s{number}(void) __asm__("{label}");'
            yield f"long s{number}(void) {{ return 0; }}"
    for number, soname in enumerate(library.needed):
        yield f'extern char r{number}[] __asm__("{_marker(soname)}");'
        yield f"static void *p{number} __attribute__((used)) = r{number};"


def _version_script(library: StandinLibrary) -> Iterator[str]:
    several = _several_versions(library)
    helpers = [
        f"relink_standin_{number}"
        for number, (name, version, _) in enumerate(library.symbols)
        if version is not None and name in several
    ]
    for position, node in enumerate(library.versions):
        names = [name for name, version, _ in library.symbols if version == node and name not in several]
        yield f"{node} {{"
        if names:
            yield "  global: " + " ".join(f'"{name}";' for name in names)
        if helpers and position == 0:
            yield "  local: " + " ".join(f"{name};" for name in helpers)
        yield "};"


@functools.cache
def compiler() -> tuple[str, ...]:
    """Return the C compiler's command line: ``cc``, else the one inside the ``ziglang`` package.

    :raises RelinkError: there is neither.
    """
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found:
        return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    raise RelinkError(
        "there is no C compiler to build the stand-in with; install gcc, or: pip install ziglang"
    )
